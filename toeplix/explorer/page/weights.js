// The tensors of a model as a tree, with shapes and counts, and histograms of the weights of one module.

import { ask, attempt, element, find, replacing, shape, short } from "./dom.js";

const WIDE = 200; // of a histogram, in its own units
const TALL = 70;

export function weights() {
  let name = "";
  let shown = []; // histograms
  const begin = replacing();

  async function tree(wanted) {
    if (!wanted) throw new Error("there is no finished model here: its weights appear when it is saved");
    const { tensors, stored, parameters } = await ask("/api/weights", { name: wanted });
    if (find("model").value !== wanted) return; // another one was chosen meanwhile
    name = wanted;
    const root = { children: new Map(), numbers: stored };
    for (const tensor of tensors) insert(root, tensor);
    const all = parameters === null ? "" : `${short(parameters)} parameters; `;
    find("weights-total").textContent = `${all}${short(stored)} numbers in ${tensors.length} tensors of the checkpoint`;
    find("weights-tree").replaceChildren(...[...root.children].map(([part, node]) => branch(part, node, stored, 0)));
    const first = tensors.find((tensor) => /(^|\.)0\./.test(tensor.name))?.name ?? tensors[0]?.name ?? "";
    await choose(first.replace(/((^|\.)0)\..*/, "$1"));
  }

  function branch(part, node, total, depth) {
    const share = `${short(node.numbers)} · ${percent(node.numbers / total)}`;
    const count = element("span", { className: "count", textContent: node.tensor ? `${node.tensor.shape.join(" × ") || "scalar"} · ${share}` : share });
    const button = element("button", { type: "button", textContent: part, title: `histograms of ${node.name}` });
    button.dataset.part = node.name;
    button.addEventListener("click", (event) => {
      event.preventDefault(); // the triangle opens and closes, the name chooses
      attempt(() => choose(node.name));
    });
    if (node.tensor) return element("div", { className: "leaf" }, button, count);
    const below = [...node.children].map(([name, child]) => branch(name, child, total, depth + 1));
    return element("details", { open: depth === 0 || node.name.endsWith(".0") }, element("summary", {}, button, count), ...below);
  }

  async function choose(part) {
    if (!part) return;
    shown = (await ask("/api/histograms", { name, part }, begin())).histograms;
    for (const button of find("weights-tree").querySelectorAll("button")) button.classList.toggle("chosen", button.dataset.part === part);
    find("weights-part").textContent = part;
    draw();
  }

  const draw = () => find("weights-histograms").replaceChildren(...shown.map((each) => histogram(each, find("weights-part").textContent, find("weights-log").checked)));
  find("weights-log").addEventListener("change", draw);
  return { show: (wanted) => attempt(() => (wanted !== name || !shown.length ? tree(wanted) : null)) };
}

function insert(root, tensor) {
  let node = root;
  const parts = tensor.name.split(".");
  parts.forEach((part, index) => {
    if (!node.children.has(part)) node.children.set(part, { children: new Map(), numbers: 0, name: parts.slice(0, index + 1).join(".") });
    node = node.children.get(part);
    node.numbers += tensor.numbers;
  });
  node.tensor = tensor;
}

function histogram(found, part, log) {
  const height = found.counts.map((count) => (log ? Math.log1p(count) : count));
  const most = Math.max(...height, 1e-9);
  const step = WIDE / height.length;
  const path = height.map((value, index) => `M${(index * step).toFixed(1)} ${TALL}v${((-value / most) * (TALL - 4)).toFixed(1)}h${(step - 0.6).toFixed(1)}V${TALL}Z`);
  const picture = shape("svg", { viewBox: `0 0 ${WIDE} ${TALL}`, preserveAspectRatio: "none", "aria-hidden": "true" });
  picture.append(shape("line", { class: "zero", x1: WIDE / 2, x2: WIDE / 2, y1: 0, y2: TALL }), shape("path", { class: "bars", d: path.join("") }));
  const ends = element("div", { className: "ends" }, element("span", { textContent: short(-found.limit) }), element("span", { textContent: "0" }), element("span", { textContent: short(found.limit) }));
  const words = `${found.shape.join(" × ") || "scalar"}, mean ${short(found.mean)}, std ${short(found.deviation)}`;
  const odd = found.not_finite ? [element("span", { className: "wrong", textContent: `${short(found.not_finite)} values are not finite` })] : [];
  return element("figure", { className: "panel" }, picture, ends, element("figcaption", {}, element("b", { textContent: found.name.startsWith(`${part}.`) ? found.name.slice(part.length + 1) : found.name, title: found.name }), element("br"), words, ...odd));
}

const percent = (part) => (part >= 0.095 ? `${(100 * part).toFixed(0)} %` : `${(100 * part).toPrecision(1)} %`);
