// Lookup blocks: the weights w[t - s] (q[t] . k[s]) of earlier tokens in one head of one block.

import { attempt, element, find, replacing, send, short } from "./dom.js";
import { tokenPairs, top } from "./pairs.js";

export function lookup() {
  let model = "";
  let asked = "";
  const begin = replacing();
  const view = tokenPairs("lookup", (found, place, parts) => {
    const own = found.rows[place];
    const strongest = own.reduce((a, b) => (Math.abs(b) > Math.abs(a) ? b : a), 0);
    return `The query at ${JSON.stringify(found.names[place])}, position ${place}, reads ${top(found, place, parts)}; largest weight ${short(strongest)}`;
  });
  const number = (id, other) => Number(find(id).value || other);
  const wish = () => ({ model, text: find("lookup-source").value, block: number("lookup-block", -1), head: number("lookup-head", 0) });

  const options = (id, values, chosen) => {
    find(id).replaceChildren(...values.map((value) => element("option", { value, textContent: value })));
    find(id).value = String(chosen);
  };

  async function follow() {
    const signal = begin();
    const request = wish();
    find("lookup-go").disabled = true;
    try {
      const answer = await (await send("/api/lookup", request, signal)).json();
      options("lookup-block", Object.keys(answer.blocks), answer.block);
      options("lookup-head", [...Array(answer.blocks[answer.block]).keys()], request.head);
      view.fill(answer, answer.weights);
    } catch (error) {
      if (!signal.aborted) view.clear(); // what is shown belongs to another model or text
      throw error;
    } finally {
      if (!signal.aborted) {
        asked = JSON.stringify(wish());
        find("lookup-go").disabled = !model;
      }
    }
  }

  find("lookup-form").addEventListener("submit", (event) => {
    event.preventDefault();
    attempt(follow);
  });
  find("lookup-block").addEventListener("change", () => {
    find("lookup-head").value = "0";
    attempt(follow);
  });
  find("lookup-head").addEventListener("change", () => attempt(follow));
  return {
    show(name) {
      if (name !== model) for (const id of ["lookup-block", "lookup-head"]) find(id).replaceChildren();
      model = name;
      find("lookup-go").disabled = !name;
      if (name && JSON.stringify(wish()) !== asked) attempt(follow);
    },
  };
}
