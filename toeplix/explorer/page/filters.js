// A filter as a curve over lags, beside the other heads of its layer, and as a matrix.

import { attempt, find, short } from "./dom.js";
import { colour, sheet } from "./canvas.js";
import { chart } from "./chart.js";
import { choose, chosen, load } from "./chosen.js";

const MOST = 256; // rows and columns of a matrix

export function filters() {
  let taps = [];
  let others = [];
  const draw = chart(find("filters-curve"), (found, value) => {
    const words = found.filter(({ line }) => line.x.length).map(({ line, at }) => `${line.name} ${short(line.y[at])}`);
    find("filters-read").textContent = value === null ? "\u00a0" : `lag ${value}: ${words.join(" · ")}`;
  });
  const matrix = sheet(find("filters-matrix"), (pen, width, height) => {
    if (taps.length) cells(pen, width, height, taps.slice(0, length()));
  });
  const length = () => Math.min(Number(find("filters-lags").value) || taps.length, taps.length);

  function curves() {
    const log = find("filters-log").checked;
    const line = (values, name, hue, faint) => {
      const x = values.slice(0, length()).map((_, lag) => lag);
      const y = values.slice(0, length()).map((value) => (log ? Math.abs(value) : value));
      return { x, y, name, hue, faint, dots: !faint && length() <= 64 };
    };
    const lines = others.map(({ row, taps: values }, index) => line(values, `head ${row.head}`, index + 1, true));
    draw([...lines, line(taps, chosen.row?.name ?? "", 0, false)], { x: "lag", y: log ? "|tap|" : "tap", logy: log });
    matrix();
    const most = Math.max(...taps.slice(0, length()).map(Math.abs), 0);
    find("filters-low").textContent = short(-most);
    find("filters-high").textContent = short(most);
  }

  async function one() {
    const { row } = chosen;
    const siblings = chosen.rows.filter((each) => row && each !== row && each.layer === row.layer && each.kernel === row.kernel).slice(0, 7);
    const [own, ...rest] = await Promise.all([load(row), ...siblings.map(load)]);
    taps = own?.taps ?? [];
    others = siblings.map((each, index) => ({ row: each, taps: rest[index].taps }));
    curves();
  }

  find("filters-filter").addEventListener("change", (event) => {
    choose(event.target.value);
    attempt(one);
  });
  for (const id of ["filters-lags", "filters-log"]) find(id).addEventListener("change", curves);
  return {
    show: (model) =>
      attempt(async () => {
        await chosen.of(model, find("filters-filter"));
        await one();
      }),
  };
}

const parts = (name) => colour(name).split(",").map(Number);

function cells(pen, width, height, taps) {
  const size = Math.min(taps.length, MOST);
  const most = Math.max(...taps.slice(0, size).map(Math.abs)) || 1;
  const [low, high] = [parts("low"), parts("heat")];
  const small = new OffscreenCanvas(size, size);
  const brush = small.getContext("2d");
  const image = brush.createImageData(size, size);
  for (let t = 0; t < size; t++)
    for (let s = 0; s <= t; s++) {
      const value = taps[t - s];
      const hue = value < 0 ? low : high;
      const at = 4 * (t * size + s);
      image.data.set(hue, at);
      image.data[at + 3] = 255 * Math.cbrt(Math.abs(value) / most);
    }
  brush.putImageData(image, 0, 0);
  pen.imageSmoothingEnabled = false;
  const edge = 10;
  pen.drawImage(small, edge, edge, width - 2 * edge, height - 2 * edge);
  pen.strokeStyle = colour("line");
  pen.strokeRect(edge, edge, width - 2 * edge, height - 2 * edge);
  pen.fillStyle = colour("soft");
  pen.textAlign = "right";
  pen.fillText(`s = 0 … ${size - 1} across, t down`, width - 18, 28);
}
