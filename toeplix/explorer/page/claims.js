// The paper's claims, each with its verdict first, and the figures.

import { ask, attempt, element, find } from "./dom.js";

const HEAD = ["verdict", "claim", "measured here", "the paper's value", "where"];

export function claims() {
  let read = false;
  async function fill() {
    const found = await ask("/api/claims");
    read = true;
    const sum = counts(found.claims);
    find("claims-note").textContent = [...(sum ? [sum] : []), found.note, ...found.problems].join(" · ");
    const head = HEAD.map((name) => element("th", { scope: "col", textContent: name }));
    find("claims-table").replaceChildren(element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...found.claims.map(line)));
    find("claims-figures").replaceChildren(
      ...found.figures.map((figure) =>
        element(
          "figure",
          {},
          element("img", { src: `/figures/${figure.file}`, alt: `${figure.name}, ${figure.scale} scale`, loading: "lazy" }),
          element("figcaption", { textContent: `${figure.name}, ${figure.scale} scale: ${figure.title}` }),
        ),
      ),
    );
  }
  return {
    show() {
      if (!read) attempt(fill);
    },
  };
}

function line(claim) {
  const several = new Set(claim.ours.map((each) => each.experiment)).size > 1;
  const place = (each) => (several ? `${each.scale}, ${each.experiment}` : each.scale);
  const verdicts = claim.ours.map((each) =>
    element("div", { className: `verdict ${each.word}` }, each.word, element("span", { className: "quiet", textContent: ` ${place(each)}` })),
  );
  const none = element("div", { className: "verdict quiet", textContent: claim.missing });
  const numbers = claim.ours.map((each) => element("div", { textContent: several ? `${each.experiment}: ${each.ours}` : each.ours }));
  const cell = (index, ...children) => {
    const made = element("td", {}, ...children);
    made.dataset.head = HEAD[index];
    return made;
  };
  return element(
    "tr",
    {},
    cell(0, ...(verdicts.length ? verdicts : [none])),
    cell(1, element("b", { textContent: claim.name }), ` ${claim.text}`),
    cell(2, ...(numbers.length ? numbers : ["–"])),
    cell(3, claim.value || "–"),
    cell(4, claim.where),
  );
}

// How many claims have each verdict, at the largest scale that was measured.
function counts(all) {
  const found = new Map();
  for (const claim of all) {
    const word = claim.ours.at(0)?.word;
    if (word) found.set(word, (found.get(word) ?? 0) + 1);
  }
  return [...found].sort((a, b) => b[1] - a[1]).map(([word, count]) => `${word}: ${count}`).join(", ");
}
