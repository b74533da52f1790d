// Best and final values, settings side by side, and the last samples of the chosen runs.

import { element, find, short } from "./dom.js";

// runs: [{ name, rows, details }]
export function tables(runs) {
  values(runs);
  const known = runs.filter((run) => run.details);
  settings(known);
  samples(known);
}

const cells = (texts) => texts.map((text) => element("td", { className: "number", textContent: text }));
const head = (names) => element("thead", {}, element("tr", {}, ...names.map((name) => element("th", { scope: "col", textContent: name }))));
const last = (rows, key) => rows.findLast((row) => row[key] !== undefined);

function best(rows, key) {
  const known = rows.filter((row) => row[key] !== undefined);
  return known.length ? known.reduce((a, b) => (b[key] < a[key] ? b : a)) : undefined;
}

function median(numbers) {
  const sorted = numbers.filter((value) => value !== undefined).sort((a, b) => a - b);
  return sorted.length ? sorted[sorted.length >> 1] : undefined;
}

function values(runs) {
  const lines = runs.map(({ name, rows }) => {
    const good = best(rows, "val_loss");
    const texts = [
      good ? `${good.val_loss.toFixed(4)} (step ${short(good.step)})` : "–",
      last(rows, "val_loss")?.val_loss.toFixed(4) ?? "–",
      best(rows, "val_bits_per_byte")?.val_bits_per_byte.toFixed(4) ?? "–",
      last(rows, "loss")?.loss.toFixed(4) ?? "–",
      short(median(rows.map((row) => row.tokens_per_second))),
      rows.length ? time(rows.at(-1).seconds) : "–",
    ];
    return element("tr", {}, element("th", { scope: "row", textContent: name }), ...cells(texts));
  });
  const names = ["run", "best validation loss", "final validation loss", "best bits per byte", "final training loss", "tokens per second, median", "time"];
  find("runs-values").replaceChildren(head(names), element("tbody", {}, ...lines));
}

function time(seconds) {
  if (seconds === undefined) return "–";
  if (seconds < 120) return `${seconds.toFixed(0)} s`;
  return seconds < 7200 ? `${(seconds / 60).toFixed(1)} min` : `${(seconds / 3600).toFixed(1)} h`;
}

function settings(runs) {
  const flat = runs.map(({ details }) => {
    const { model = {}, ...rest } = details.settings;
    return { ...model, ...rest };
  });
  const keys = [...new Set(flat.flatMap(Object.keys))];
  const rows = keys.map((key) => {
    const found = flat.map((each) => each[key]);
    return { key, found, differs: found.some((value) => String(value) !== String(found[0])) };
  });
  const only = find("runs-differ").checked;
  const body = rows
    .filter((row) => row.differs || !only)
    .map((row) =>
      element(
        "tr",
        { className: row.differs ? "differs" : "" },
        element("th", { scope: "row", textContent: row.key }),
        ...row.found.map((value) => element("td", { textContent: short(value) })),
      ),
    );
  find("runs-settings").replaceChildren(head(["setting", ...runs.map((run) => run.name)]), element("tbody", {}, ...body));
}

function samples(runs) {
  const known = runs.filter((run) => run.details.sample);
  find("runs-samples").replaceChildren(
    ...known.flatMap((run) => [element("h3", { textContent: run.name }), element("pre", { textContent: run.details.sample, tabIndex: 0 })]),
    ...(known.length ? [] : [element("p", { className: "quiet", textContent: "None: runs write samples every --sample-every steps." })]),
  );
}
