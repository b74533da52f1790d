// The curves of the chosen runs: loss, learning rate, gradient norm and throughput, with one zoom for all.

import { element, find, short } from "./dom.js";
import { dashes, series } from "./canvas.js";
import { chart } from "./chart.js";
import { download } from "./download.js";

const HINT = "Move over the curves, or focus them and use the arrow keys. Drag to zoom, double-click to see all; keys + − 0.";
const ACROSS = { step: "steps", tokens: "tokens", seconds: "seconds" };
const LOSSES = { both: ["loss", "val_loss"], loss: ["loss"], val_loss: ["val_loss"], val_bits_per_byte: ["val_bits_per_byte"] };
const OTHERS = { lr: "learning rate", grad_norm: "gradient norm", tokens_per_second: "tokens per second" };
const COLUMNS = ["step", "tokens", "seconds", "loss", "val_loss", "val_perplexity", "val_bits_per_byte", "lr", "grad_norm", "tokens_per_second"];
const CHOICES = ["runs-loss", "runs-by", "runs-logx", "runs-logy", "runs-smooth"];

// shown(): the chosen runs, [{ name, rows, hue }].
export function plots(shown) {
  let range = null; // across, of all charts
  const by = () => find("runs-by").value;
  const tell = (found, value) => {
    const words = found.filter(({ line }) => line.x.length).map(({ line, at }) => `${line.name} ${short(line.y[at])}`);
    find("runs-read").textContent = value === null ? HINT : `${short(value)} ${ACROSS[by()]}: ${words.join(" · ")}`;
  };
  const zoom = (wanted) => {
    range = wanted;
    find("runs-reset").disabled = !range;
    draw();
  };
  const main = chart(find("runs-chart"), tell, zoom);
  const small = Object.keys(OTHERS).map((key) => [key, chart(find(`runs-${key}`), tell, zoom)]);

  function lines(key, kind) {
    const validation = key.startsWith("val_");
    return shown().map(({ name, rows, hue }) => {
      const known = rows.filter((row) => row[key] !== undefined && row[by()] !== undefined);
      let y = known.map((row) => row[key]);
      if (!validation && find("runs-smooth").checked) y = smooth(y);
      const words = kind === "both" ? `${name}, ${validation ? "validation" : "training"}` : name;
      return { x: known.map((row) => row[by()]), y, hue, thin: !validation, dots: validation && known.length <= 60, name: words };
    });
  }

  // A curve that lies on another one is dashed, so that both are seen.
  function apart(all) {
    const first = new Map();
    for (const line of all) {
      const same = JSON.stringify([line.x, line.y]);
      line.dashed = line.x.length > 0 && first.has(same);
      if (!first.has(same)) first.set(same, line);
    }
    return all;
  }

  function draw() {
    const kind = find("runs-loss").value;
    const axes = { x: ACROSS[by()], zero: true, range, logx: find("runs-logx").checked, empty: shown().length ? "no rows yet" : "choose a run" };
    const unit = kind === "val_bits_per_byte" ? "bits per byte" : "loss (nats per token)";
    main.draw(apart(LOSSES[kind].flatMap((key) => lines(key, kind))), { ...axes, y: unit, logy: find("runs-logy").checked });
    for (const [key, one] of small) one.draw(apart(lines(key, "")), { ...axes, y: OTHERS[key] });
    legend(kind);
  }

  function legend(kind) {
    const swatch = (hue, look) => {
      const line = element("span", { className: `line ${look}`, ariaHidden: "true" });
      if (hue !== null) line.style.borderTopColor = series(hue);
      if (hue !== null && dashes(hue).length) line.style.borderTopStyle = "dashed";
      return line;
    };
    const keys = LOSSES[kind].map((key) => element("span", { className: "key" }, swatch(null, key === "loss" ? "thin" : "thick"), key === "loss" ? "training (thin)" : "validation (thick)"));
    const names = shown().map(({ name, hue }) => element("span", { className: "key" }, swatch(hue, "thick"), name));
    find("runs-legend").replaceChildren(...keys, ...names);
  }

  function table() {
    const quoted = (value) => (/[",\r\n]/.test(value) ? `"${value.replaceAll('"', '""')}"` : value);
    const rows = shown().flatMap(({ name, rows }) =>
      rows
        .filter((row) => !range || (row[by()] >= range[0] && row[by()] <= range[1]))
        .map((row) => [quoted(name), ...COLUMNS.map((key) => row[key] ?? "")].join(",")),
    );
    return [["run", ...COLUMNS].join(","), ...rows].join("\n") + "\n";
  }

  for (const id of CHOICES)
    find(id).addEventListener("change", () => {
      if (id === "runs-by") zoom(null); // another unit
      else draw();
    });
  find("runs-reset").addEventListener("click", () => zoom(null));
  find("runs-csv").addEventListener("click", () => download("runs.csv", "text/csv", table()));
  find("runs-svg").addEventListener("click", () => download("runs.svg", "image/svg+xml", main.svg()));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  return { draw };
}

// A running mean that forgets: long noise becomes a line, the first value is kept.
function smooth(values) {
  let mean = values[0];
  return values.map((value) => (mean = 0.85 * mean + 0.15 * value));
}
