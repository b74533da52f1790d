// Which filter of which model is looked at: one choice for the symbol and for the taps.

import { ask, element } from "./dom.js";

const models = new Map(); // name: rows
const curves = new Map(); // model and filter: what was answered

export const chosen = {
  wanted: "", // the model that was asked for last
  model: "",
  rows: [],
  row: null,

  // Read the filters of a model, and offer them in a chooser.
  async of(model, chooser) {
    if (!model) throw new Error("there is no finished model here: its filters appear when it is saved");
    chosen.wanted = model;
    if (!models.has(model)) models.set(model, (await ask("/api/filters", { name: model })).rows);
    if (chosen.wanted !== model) throw new DOMException("another model was chosen meanwhile", "AbortError");
    const before = chosen.row?.name;
    Object.assign(chosen, { model, rows: models.get(model) });
    chosen.row = chosen.rows.find((row) => row.name === before) ?? chosen.rows[0] ?? null;
    chooser.replaceChildren(...chosen.rows.map((row) => element("option", { value: row.name, textContent: row.name })));
    chooser.value = chosen.row?.name ?? "";
  },
};

export function choose(name) {
  chosen.row = chosen.rows.find((row) => row.name === name) ?? null;
}

export function load(row = chosen.row) {
  if (!row) return null;
  const { layer, head, kernel } = row;
  const key = JSON.stringify([chosen.model, layer, head, kernel]);
  if (!curves.has(key)) {
    const asked = ask("/api/filter", { name: chosen.model, layer, head, kernel });
    curves.set(key, asked);
    asked.catch(() => curves.delete(key));
  }
  return curves.get(key);
}
