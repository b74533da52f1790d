// Text from the model, token by token; colour is the chance it had, the side shows what else could have come.

import { attempt, element, find, send, tokens } from "./dom.js";

export function write() {
  const box = find("write-text");
  const side = find("write-side");
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
      element("p", {}, element("code", { textContent: visible(event.name) }), ` ${event.kind === "prompt" ? "was given" : "was written"}`),
      element("p", { className: "quiet", textContent: `chance ${percent(event.p)}, ${event.bits.toFixed(2)} bits, rank ${event.rank}` }),
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
    const drawn = events.filter((event) => event.kind === "model");
    const bits = drawn.reduce((total, event) => total + event.bits, 0);
    const seconds = (performance.now() - began) / 1000;
    if (drawn.length)
      find("write-sum").textContent = `${drawn.length} tokens, ${(bits / drawn.length).toFixed(2)} bits each, ${(drawn.length / seconds).toFixed(0)} a second`;
  }

  async function go() {
    stopping?.abort();
    stopping = new AbortController();
    const { signal } = stopping;
    row.clear();
    events = [];
    find("write-stop").disabled = false;
    const number = (id) => Number(find(id).value);
    const wish = { model, prompt: find("write-prompt").value, new: number("write-new"), temperature: number("write-temperature") };
    Object.assign(wish, { top_p: number("write-p"), top_k: number("write-k"), seed: number("write-seed") });
    const began = performance.now();
    await attempt(async () => {
      const response = await send("/api/write", wish, signal);
      for await (const several of lines(response.body)) {
        if (signal.aborted) break; // lines that had come already
        several.forEach(add);
        box.scrollTop = box.scrollHeight;
        sum(began);
        await new Promise((resume) => setTimeout(resume)); // or Stop would wait for the last token
      }
    });
    if (stopping?.signal === signal) find("write-stop").disabled = true;
  }

  find("write-form").addEventListener("submit", (event) => {
    event.preventDefault();
    go();
  });
  find("write-prompt").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) find("write-form").requestSubmit();
  });
  find("write-stop").addEventListener("click", () => stopping?.abort());
  return {
    show(name) {
      model = name;
      find("write-go").disabled = !name;
    },
  };
}

// Whatever lines have come, together.
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

// By bits, from 10 and more (the colour of the unlikely) over 5 (none) to 0 (that of the certain).
function shade(p) {
  const away = 1 - Math.min(-Math.log2(p), 10) / 5;
  return `rgba(var(--${away < 0 ? "low" : "certain"}), ${(0.6 * Math.abs(away)).toFixed(3)})`;
}

function bar(p) {
  const inner = element("span");
  inner.style.width = `${(100 * p).toFixed(1)}%`;
  return element("div", { className: "chance", ariaHidden: "true" }, inner);
}

const percent = (p) => (p >= 0.0995 ? `${(100 * p).toFixed(0)} %` : p >= 1e-4 ? `${(100 * p).toPrecision(2)} %` : p.toExponential(1));
const visible = (text) => JSON.stringify(text).slice(1, -1).replaceAll('\\"', '"').replaceAll(" ", "␣");
