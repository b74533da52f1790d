// All filters of a model at a glance, then one: a curve over lags beside the other heads, and a matrix.

import { ask, attempt, element, find, shape, short } from "./dom.js";
import { colour, sheet } from "./canvas.js";
import { chart } from "./chart.js";
import { choose, chosen, load } from "./chosen.js";

const MOST = 256; // rows and columns of a matrix
const WIDE = 200; // of a small panel, in its own units
const TALL = 64;

export function filters() {
  let taps = [];
  let others = [];
  let seen = ""; // the model of the small panels
  const { draw } = chart(find("filters-curve"), (found, value) => {
    const words = found.filter(({ line }) => line.x.length).map(({ line, at }) => `${line.name} ${short(line.y[at])}`);
    find("filters-read").textContent = value === null ? "\u00a0" : `lag ${value}: ${words.join(" · ")}`;
  });
  const matrix = sheet(find("filters-matrix"), (pen, width, height) => {
    if (taps.length) cells(pen, width, height, taps.slice(0, length()));
  });
  const length = () => Math.min(Number(find("filters-lags").value) || taps.length, taps.length);

  function curves() {
    const log = find("filters-log").checked;
    const line = (values, name, hue, thin) => {
      const x = values.slice(0, length()).map((_, lag) => lag);
      const y = values.slice(0, length()).map((value) => (log ? Math.abs(value) : value));
      return { x, y, name, hue, thin, dots: !thin && length() <= 64 };
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
    if (chosen.row !== row) return; // another one was chosen meanwhile
    taps = own?.taps ?? [];
    others = siblings.map((each, index) => ({ row: each, taps: rest[index].taps }));
    curves();
  }

  // One panel for each layer, with the filters of its heads.
  async function glance() {
    const model = chosen.model;
    if (seen === model) return mark();
    const { filters: all } = await ask("/api/overview", { name: model });
    if (chosen.model !== model) return; // another one was chosen meanwhile
    const layers = new Map();
    for (const filter of all) layers.set(filter.layer, [...(layers.get(filter.layer) ?? []), filter]);
    find("filters-glance").replaceChildren(...[...layers].map(([layer, own]) => panel(layer, own, () => take(own[0].name))));
    seen = model;
    mark();
  }

  function mark() {
    for (const button of find("filters-glance").children) button.classList.toggle("chosen", button.dataset.layer === chosen.row?.layer);
  }

  function take(name) {
    find("filters-filter").value = name;
    choose(name);
    mark();
    attempt(one);
  }

  find("filters-filter").addEventListener("change", (event) => {
    take(event.target.value);
  });
  for (const id of ["filters-lags", "filters-log"]) find(id).addEventListener("change", curves);
  return {
    show: (model) =>
      attempt(async () => {
        await chosen.of(model, find("filters-filter"));
        await Promise.all([one(), glance()]);
      }),
  };
}

// The band between the smallest and the largest tap of every bin of lags, one colour for each head.
function panel(layer, filters, take) {
  const most = Math.max(...filters.flatMap(({ low, high }) => [...low, ...high].map(Math.abs)), 1e-12);
  const picture = shape("svg", { viewBox: `0 0 ${WIDE} ${TALL}`, preserveAspectRatio: "none", "aria-hidden": "true" });
  picture.append(shape("line", { class: "zero", x1: 0, x2: WIDE, y1: TALL / 2, y2: TALL / 2 }));
  filters.slice(0, 16).forEach(({ low, high }, index) => {
    const x = (bin) => ((bin + 0.5) * WIDE) / low.length;
    const y = (value) => TALL / 2 - (value / most) * (TALL / 2 - 3);
    const along = (values) => values.map((value, bin) => `${x(bin).toFixed(1)} ${y(value).toFixed(1)}`);
    const band = `M${along(high).join("L")}L${along(low).reverse().join("L")}Z`;
    picture.append(shape("path", { class: `band hue${index % 8}`, d: band }));
  });
  const heads = filters.length === 1 ? "1 filter" : `${filters.length} filters`;
  const words = element("span", { className: "more", textContent: `${heads}, |tap| ≤ ${short(most)}` });
  const button = element("button", { type: "button", className: "panel" }, picture, element("b", { textContent: layer }), words);
  button.dataset.layer = layer;
  button.addEventListener("click", take);
  return button;
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
