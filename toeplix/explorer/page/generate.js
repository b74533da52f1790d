// Generated text, token by token; the colour is the probability of a token, the side shows the top alternatives.

import { attempt, element, find, send, tokens } from "./dom.js";

export function generate() {
  const box = find("generate-text");
  const side = find("generate-side");
  let events = [];
  let stopping = null;
  let model = "";
  const row = tokens(box, (place) => aside(events[place]));

  function aside(event) {
    if (!event) return;
    const rows = event.top.map(([name, p]) =>
      element(
        "tr",
        { className: name === event.name ? "chosen" : "" },
        element("td", {}, element("code", { textContent: visible(name) })),
        element("td", {}, bar(p)),
        element("td", { className: "number", textContent: percent(p) }),
      ),
    );
    side.replaceChildren(
      element("p", {}, element("code", { textContent: visible(event.name) }), ` ${event.kind === "prompt" ? "is in the prompt" : "is generated"}`),
      element("p", { className: "quiet", textContent: `probability ${percent(event.p)}, ${event.bits.toFixed(2)} bits, rank ${event.rank}` }),
      element("table", {}, element("tbody", {}, ...rows)),
    );
  }

  function add(event) {
    if (event.kind === "error") throw new Error(event.text);
    if (event.kind === "rest") {
      box.lastElementChild?.append(event.text);
      return;
    }
    events.push(event);
    const span = row.add(event.text || "·", `${visible(event.name)}, ${percent(event.p)}`);
    if (event.kind === "prompt") span.className = "prompt";
    span.style.backgroundColor = shade(event.p);
  }

  function sum(began) {
    const sampled = events.filter((event) => event.kind === "model");
    const bits = sampled.reduce((total, event) => total + event.bits, 0);
    const seconds = (performance.now() - began) / 1000;
    if (sampled.length)
      find("generate-sum").textContent = `${sampled.length} tokens, ${(bits / sampled.length).toFixed(2)} bits per token, ${(sampled.length / seconds).toFixed(0)} tokens per second`;
  }

  async function go() {
    stopping?.abort();
    stopping = new AbortController();
    const { signal } = stopping;
    row.clear();
    events = [];
    find("generate-stop").disabled = false;
    const number = (id) => Number(find(id).value);
    const request = { model, prompt: find("generate-prompt").value, new: number("generate-new"), temperature: number("generate-temperature") };
    Object.assign(request, { top_p: number("generate-p"), top_k: number("generate-k"), seed: number("generate-seed") });
    const began = performance.now();
    await attempt(async () => {
      const response = await send("/api/generate", request, signal);
      for await (const several of lines(response.body)) {
        if (signal.aborted) break; // lines that were already received
        several.forEach(add);
        box.scrollTop = box.scrollHeight;
        sum(began);
        await new Promise((resume) => setTimeout(resume)); // or Stop would wait for the last token
      }
    });
    if (stopping?.signal === signal) find("generate-stop").disabled = true;
  }

  find("generate-form").addEventListener("submit", (event) => {
    event.preventDefault();
    go();
  });
  find("generate-prompt").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) find("generate-form").requestSubmit();
  });
  find("generate-stop").addEventListener("click", () => stopping?.abort());
  return {
    show(name) {
      model = name;
      find("generate-go").disabled = !name;
    },
  };
}

// Yields all lines received so far, together.
async function* lines(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n");
    rest = parts.pop();
    yield parts.map((part) => JSON.parse(part));
  }
}

// The colour of a token by its surprisal in bits: 10 and more is improbable, 5 has no colour, 0 is certain.
function shade(p) {
  const away = 1 - Math.min(-Math.log2(p), 10) / 5;
  return `rgba(var(--${away < 0 ? "low" : "certain"}), ${(0.6 * Math.abs(away)).toFixed(3)})`;
}

function bar(p) {
  const inner = element("span");
  inner.style.width = `${(100 * p).toFixed(1)}%`;
  return element("div", { className: "probability", ariaHidden: "true" }, inner);
}

const percent = (p) => (p >= 0.0995 ? `${(100 * p).toFixed(0)} %` : p >= 1e-4 ? `${(100 * p).toPrecision(2)} %` : p.toExponential(1));
const visible = (text) => JSON.stringify(text).slice(1, -1).replaceAll('\\"', '"').replaceAll(" ", "␣");
