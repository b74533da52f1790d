// Tabs, the chosen model, and the views behind them. A view is mounted when it is first shown.

import { ask, attempt, element, enter, find, forget } from "./dom.js";
import { claims } from "./claims.js";
import { filters } from "./filters.js";
import { lookup } from "./lookup.js";
import { contributions } from "./contributions.js";
import { runs } from "./runs.js";
import { spectral } from "./spectral.js";
import { weights } from "./weights.js";
import { generate } from "./generate.js";

const VIEWS = { runs, generate, weights, filters, spectral, contributions, lookup, claims };
const mounted = {}; // name: { show(model), hide(), update(listing) }
const names = Object.keys(VIEWS);
const tabs = names.map((name) => find(`tab-${name}`));
let current = null;

export function show(name) {
  if (!VIEWS[name] || name === current) return;
  if (current) mounted[current].hide?.();
  current = name;
  enter(name);
  names.forEach((each, index) => {
    const on = each === name;
    find(each).hidden = !on;
    tabs[index].setAttribute("aria-selected", String(on));
    tabs[index].tabIndex = on ? 0 : -1;
  });
  tabs[names.indexOf(name)].scrollIntoView({ block: "nearest", inline: "nearest" });
  mounted[name] ??= VIEWS[name]();
  if (listing) mounted[name].update?.(listing);
  mounted[name].show?.(find("model").value);
  history.replaceState(null, "", `#${name}`);
}

tabs.forEach((tab, index) => {
  tab.addEventListener("click", () => show(names[index]));
  tab.addEventListener("keydown", (event) => {
    const last = names.length - 1;
    const there = { ArrowRight: index + 1, ArrowLeft: index - 1, Home: 0, End: last }[event.key];
    if (there === undefined) return;
    event.preventDefault();
    const next = (there + names.length) % names.length;
    tabs[next].focus();
    show(names[next]);
  });
});

let listing = null;

async function look() {
  const found = await ask("/api/list");
  forget("");
  listing = found;
  find("root").textContent = found.root;
  const chooser = find("model");
  const known = [...chooser.options].map((option) => option.value);
  if (known.join("\n") !== found.models.join("\n")) {
    const before = chooser.value;
    const options = found.models.map((name) => element("option", { value: name, textContent: name }));
    if (!options.length) options.push(element("option", { value: "", textContent: "no finished model here" }));
    chooser.replaceChildren(...options);
    if (found.models.includes(before)) chooser.value = before;
    else mounted[current]?.show?.(chooser.value);
  }
  mounted[current]?.update?.(found);
}

find("model").addEventListener("change", (event) => {
  forget();
  mounted[current].show?.(event.target.value);
});

const wanted = () => (VIEWS[location.hash.slice(1)] ? location.hash.slice(1) : "runs");
window.addEventListener("hashchange", () => show(wanted()));

await attempt(look);
show(listing && !listing.runs.length && location.hash === "" ? "generate" : wanted());
setInterval(() => {
  if (document.visibilityState === "visible") look().catch(() => {}); // the server may have ended; the page stays
}, 2000);
