// Contributions of earlier tokens to a token along the linear path; one response has all pairs of a text.

import { attempt, find, replacing, send } from "./dom.js";
import { tokenPairs, top } from "./pairs.js";

export function contributions() {
  let model = "";
  let asked = "";
  const begin = replacing();
  const view = tokenPairs("contributions", (found, place, parts) => `At ${JSON.stringify(found.names[place])}, position ${place}: ${top(found, place, parts)}`);
  const wish = () => ({ model, text: find("contributions-source").value, linearization: find("contributions-linearization").value });

  async function follow() {
    const signal = begin();
    const request = wish();
    asked = JSON.stringify(request);
    find("contributions-go").disabled = true;
    try {
      const answer = await (await send("/api/contributions", request, signal)).json();
      view.fill(answer, answer.contributions);
    } catch (error) {
      if (!signal.aborted) view.clear(); // what is shown belongs to another model or text
      throw error;
    } finally {
      if (!signal.aborted) find("contributions-go").disabled = !model;
    }
  }

  find("contributions-form").addEventListener("submit", (event) => {
    event.preventDefault();
    attempt(follow);
  });
  find("contributions-linearization").addEventListener("change", () => attempt(follow));
  return {
    show(name) {
      model = name;
      find("contributions-go").disabled = !name;
      if (name && JSON.stringify(wish()) !== asked) attempt(follow);
    },
  };
}
