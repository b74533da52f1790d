// Reach: which earlier tokens a token reads along the linear path; one response has all pairs of a text.

import { attempt, find, replacing, send } from "./dom.js";
import { tokenPairs, top } from "./pairs.js";

export function reach() {
  let model = "";
  let asked = "";
  const begin = replacing();
  const view = tokenPairs("reach", (found, place, parts) => `At ${JSON.stringify(found.names[place])}, position ${place}: ${top(found, place, parts)}`);
  const wish = () => ({ model, text: find("reach-source").value, linearization: find("reach-linearization").value });

  async function follow() {
    const signal = begin();
    const request = wish();
    asked = JSON.stringify(request);
    find("reach-go").disabled = true;
    try {
      const answer = await (await send("/api/reach", request, signal)).json();
      view.fill(answer, answer.reach);
    } catch (error) {
      if (!signal.aborted) view.clear(); // what is shown belongs to another model or text
      throw error;
    } finally {
      if (!signal.aborted) find("reach-go").disabled = !model;
    }
  }

  find("reach-form").addEventListener("submit", (event) => {
    event.preventDefault();
    attempt(follow);
  });
  find("reach-linearization").addEventListener("change", () => attempt(follow));
  return {
    show(name) {
      model = name;
      find("reach-go").disabled = !name;
      if (name && JSON.stringify(wish()) !== asked) attempt(follow);
    },
  };
}
