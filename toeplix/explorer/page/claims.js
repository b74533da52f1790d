// The paper's claims, what the rows on disk say of them, and the figures.

import { ask, attempt, element, find } from "./dom.js";

export function claims() {
  let read = false;
  async function fill() {
    const found = await ask("/api/claims");
    read = true;
    find("claims-note").textContent = [found.note, ...found.problems].join(" · ");
    const head = ["", "claim", "verdict", "ours", "the paper's value", "where"].map((name) => element("th", { scope: "col", textContent: name }));
    const rows = found.claims.map((claim) => {
      const several = new Set(claim.ours.map((each) => each.experiment)).size > 1;
      const place = (each) => (several ? `${each.scale}, ${each.experiment}` : each.scale);
      const verdicts = claim.ours.map((each) =>
        element("div", { className: `verdict ${each.word}`, textContent: `${each.word} (${place(each)})` }),
      );
      const numbers = claim.ours.map((each) => element("div", { textContent: several ? `${each.experiment}: ${each.ours}` : each.ours }));
      return element(
        "tr",
        {},
        element("th", { scope: "row", textContent: claim.name }),
        element("td", { textContent: claim.text }),
        element("td", {}, ...(verdicts.length ? verdicts : [claim.missing])),
        element("td", {}, ...numbers),
        element("td", { textContent: claim.value }),
        element("td", { textContent: claim.where }),
      );
    });
    find("claims-table").replaceChildren(element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...rows));
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
