// The symbol of a filter in the complex plane, animated over theta; its certified index comes from the server.

import { ask, attempt, element, find, short } from "./dom.js";
import { colour, label, series, sheet, ticks } from "./canvas.js";
import { choose, chosen, load } from "./chosen.js";

const ROUND = 6000; // milliseconds for one turn

export function spectral() {
  let curve = null; // { re, im, turns } all the way round
  let row = null;
  let playing = 0;
  const slider = find("spectral-theta");
  const calm = matchMedia("(prefers-reduced-motion: reduce)");
  const redraw = sheet(find("spectral-plane"), (pen, width, height) => {
    if (curve) plane(pen, width, height, curve, part(), Number(find("spectral-zoom").value));
  });
  const part = () => Number(slider.value) / 1000;

  function facts() {
    if (!row || !curve) return;
    const place = Math.round(part() * (curve.re.length - 1));
    const z = row.noise_deviation ? (row.index - row.noise_mean) / row.noise_deviation : null;
    const lines = [
      ["index", row.index === null ? "–" : String(row.index), "big"],
      ["proof", row.status],
      ["margin", row.margin === null ? "–" : `${short(row.margin)} of Σ|w|`],
      ["null distribution", row.noise_mean === undefined ? "–" : `${short(row.noise_mean)} ± ${row.noise_deviation.toFixed(1)}` + (z === null ? "" : ` (${z > 0 ? "+" : ""}${z.toFixed(1)} standard deviations away)`)],
      ["taps", short(row.taps)],
      ["θ", `${(2 * part()).toFixed(3)} π`],
      ["a(θ)", `${short(curve.re[place])} ${curve.im[place] < 0 ? "−" : "+"} ${short(Math.abs(curve.im[place]))} i`],
      ["winding up to θ", curve.turns[place].toFixed(2)],
    ];
    find("spectral-facts").replaceChildren(
      ...lines.flatMap(([name, value, look]) => [element("dt", { textContent: name }), element("dd", { textContent: value, className: look ?? "" })]),
    );
  }

  function turn(to) {
    slider.value = Math.round(to * 1000);
    facts();
    redraw();
  }

  function stop() {
    cancelAnimationFrame(playing);
    playing = 0;
    find("spectral-play").textContent = "Play";
  }

  function play() {
    const from = part() >= 1 ? 0 : part();
    const began = performance.now() - from * ROUND;
    find("spectral-play").textContent = "Pause";
    const step = (now) => {
      const to = (now - began) / ROUND;
      turn(Math.min(1, Math.max(0, to)));
      if (to >= 1) stop();
      else playing = requestAnimationFrame(step);
    };
    playing = requestAnimationFrame(step);
  }

  async function one() {
    const wanted = chosen.row;
    const found = await load(wanted);
    if (chosen.row !== wanted) return; // another one was chosen meanwhile
    row = wanted;
    if (!found || !row) {
      curve = null;
      redraw();
      return;
    }
    curve = whole(found.re, found.im);
    for (const line of find("spectral-table").querySelectorAll("tbody tr")) line.classList.toggle("chosen", line.dataset.name === row.name);
    stop();
    turn(1);
    if (!calm.matches) {
      slider.value = 0;
      play();
    }
  }

  function table() {
    const head = ["filter", "index", "margin", "proof"].map((name) => element("th", { scope: "col", textContent: name }));
    const lines = chosen.rows.map((each) => {
      const button = element("button", { textContent: each.name, type: "button" });
      button.addEventListener("click", () => {
        find("spectral-filter").value = each.name;
        choose(each.name);
        attempt(one);
      });
      const cells = [short(each.index), short(each.margin), each.status].map((text) => element("td", { textContent: text }));
      const line = element("tr", {}, element("td", {}, button), ...cells);
      line.dataset.name = each.name;
      return line;
    });
    find("spectral-table").replaceChildren(element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...lines));
  }

  slider.addEventListener("input", () => {
    stop();
    facts();
    redraw();
  });
  find("spectral-zoom").addEventListener("change", redraw);
  find("spectral-play").addEventListener("click", () => (playing ? stop() : play()));
  find("spectral-filter").addEventListener("change", (event) => {
    choose(event.target.value);
    attempt(one);
  });
  return {
    show: (model) =>
      attempt(async () => {
        await chosen.of(model, find("spectral-filter"));
        table();
        await one();
      }),
    hide: stop,
  };
}

// The half that was received and its mirror image, with the angle of rotation so far in turns.
export function whole(re, im) {
  const last = re.length - 1;
  const all = { re: [...re], im: [...im], turns: [0] };
  for (let i = last - 1; i >= 0; i--) {
    all.re.push(re[i]);
    all.im.push(-im[i]);
  }
  for (let i = 1; i < all.re.length; i++) {
    const [a, b, c, d] = [all.re[i - 1], all.im[i - 1], all.re[i], all.im[i]];
    all.turns.push(all.turns[i - 1] + Math.atan2(a * d - b * c, a * c + b * d) / (2 * Math.PI));
  }
  return all;
}

function plane(pen, width, height, curve, part, zoom) {
  const extent = (values) => values.reduce((most, value) => Math.max(most, Math.abs(value)), 1e-12);
  let [left, right] = [Math.min(0, ...ends(curve.re)), Math.max(0, ...ends(curve.re))];
  const tall = extent(curve.im);
  const half = Math.max((right - left) / 2, tall) * 1.12;
  let centre = (left + right) / 2;
  let scale = Math.min(width, height) / 2 / half;
  if (zoom > 1) [centre, scale] = [0, scale * zoom];
  const x = (value) => width / 2 + (value - centre) * scale;
  const y = (value) => height / 2 - value * scale;
  const span = width / 2 / scale;

  pen.lineWidth = 1;
  pen.strokeStyle = colour("grid");
  pen.fillStyle = colour("soft");
  for (const value of ticks(centre - span, centre + span, false, 6)) {
    pen.beginPath();
    pen.moveTo(x(value), 0);
    pen.lineTo(x(value), height);
    pen.stroke();
    pen.textAlign = "center";
    pen.fillText(label(value), x(value), height - 6);
  }
  for (const value of ticks(-span, span, false, 6)) {
    pen.beginPath();
    pen.moveTo(0, y(value));
    pen.lineTo(width, y(value));
    pen.stroke();
    pen.textAlign = "left";
    if (y(value) < height - 20) pen.fillText(`${label(value)}${value ? "i" : ""}`, 5, y(value) - 3);
  }

  const place = Math.round(part * (curve.re.length - 1));
  const trace = (from, to) => {
    pen.beginPath();
    for (let i = from; i <= to; i++) pen.lineTo(x(curve.re[i]), y(curve.im[i]));
    pen.stroke();
  };
  pen.lineJoin = "round";
  pen.strokeStyle = colour("line");
  pen.lineWidth = 1;
  trace(place, curve.re.length - 1);
  pen.strokeStyle = series(0);
  pen.lineWidth = 1.6;
  trace(0, place);

  pen.fillStyle = pen.strokeStyle = colour("origin");
  if (part < 1) {
    pen.setLineDash([4, 3]);
    pen.beginPath();
    pen.moveTo(x(0), y(0));
    pen.lineTo(x(curve.re[place]), y(curve.im[place]));
    pen.stroke();
    pen.setLineDash([]);
    pen.fillStyle = series(1);
    dot(pen, x(curve.re[place]), y(curve.im[place]), 5);
    pen.fillStyle = colour("origin");
  }
  dot(pen, x(0), y(0), 4.5);
  pen.textAlign = "left";
  pen.font = "bold 12px system-ui, sans-serif";
  pen.fillText("0", x(0) + 8, y(0) - 7);
}

const ends = (values) => [values.reduce((a, b) => Math.min(a, b)), values.reduce((a, b) => Math.max(a, b))];

function dot(pen, x, y, radius) {
  pen.beginPath();
  pen.arc(x, y, radius, 0, 2 * Math.PI);
  pen.fill();
}
