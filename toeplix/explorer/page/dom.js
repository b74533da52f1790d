// Elements, requests, and the one line that shows problems. Text is only ever set as text.

export const find = (id) => document.getElementById(id);

export function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in made) made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...children); // strings become text nodes
  return made;
}

export function shape(tag, attributes) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

let view = ""; // the one that is shown
const problems = new Map(); // by the view in which they happened: { words, when }; "": of all

function display() {
  const words = (problems.get(view) ?? problems.get(""))?.words ?? "";
  const line = find("problem");
  line.textContent = words;
  line.hidden = !words;
}

// From now on this view is shown, with its own problem if it has one.
export function enter(name) {
  view = name;
  display();
}

// Take back the problem of one view, or all of them: they were of another model.
export function forget(name) {
  if (name === undefined) problems.clear();
  else problems.delete(name);
  display();
}

async function answer(response) {
  if (response.ok) return response;
  const body = await response.json().catch(() => ({}));
  throw new Error(body.error ?? `the server answered ${response.status}`);
}

export async function ask(path, values = {}, signal = undefined) {
  const query = new URLSearchParams(values).toString();
  return (await answer(await fetch(query ? `${path}?${query}` : path, { signal }))).json();
}

export async function send(path, body, signal) {
  const headers = { "content-type": "application/json" };
  return answer(await fetch(path, { method: "POST", headers, body: JSON.stringify(body), signal }));
}

// Returns a function that gives the signal of new work and aborts the work before it: a response that
// comes late must not replace that of a newer request.
export function replacing() {
  let controller = null;
  return () => {
    controller?.abort();
    controller = new AbortController();
    return controller.signal;
  };
}

let clock = 0; // counts beginnings and problems

// Runs work that may fail; what went wrong is shown in the view in which it began, what was stopped on
// purpose is not. Success takes back problems from before it began, not those of something else meanwhile.
export async function attempt(work) {
  const began = ++clock;
  const here = view;
  try {
    const result = await work();
    if ((problems.get(here)?.when ?? 0) < began) problems.delete(here);
    return result;
  } catch (error) {
    if (error.name !== "AbortError") problems.set(here, { words: error.message, when: ++clock });
    return undefined;
  } finally {
    display();
  }
}

export function short(value) {
  if (value === null || value === undefined) return "–";
  if (typeof value !== "number") return String(value);
  if (Number.isInteger(value)) return value.toLocaleString("en");
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e6)) return value.toExponential(2).replace("e+", "e");
  return value.toPrecision(4);
}

// A list of tokens in which arrow keys move: one stop for Tab, the chosen one in a frame.
export function tokens(box, choose) {
  let chosen = null;
  const take = (span) => {
    if (!span) return;
    if (chosen) {
      chosen.classList.remove("chosen");
      chosen.tabIndex = -1;
      chosen.setAttribute("aria-selected", "false");
    }
    chosen = span;
    span.classList.add("chosen");
    span.tabIndex = 0;
    span.setAttribute("aria-selected", "true");
    choose(Number(span.dataset.place));
  };
  const of = (event) => event.target.closest("[data-place]");
  box.addEventListener("click", (event) => take(of(event)));
  box.addEventListener("mouseover", (event) => take(of(event)));
  box.addEventListener("focusin", (event) => take(of(event)));
  box.addEventListener("keydown", (event) => {
    const all = box.children;
    const last = all.length - 1;
    const here = chosen ? [...all].indexOf(chosen) : -1;
    const there = { ArrowRight: here + 1, ArrowLeft: here - 1, Home: 0, End: last }[event.key];
    if (there === undefined || last < 0) return;
    event.preventDefault();
    all[Math.min(Math.max(there, 0), last)].focus();
  });
  return {
    clear() {
      chosen = null;
      box.replaceChildren();
    },
    add(text, name) {
      const place = box.children.length;
      const span = element("span", { textContent: text, role: "option", tabIndex: place ? -1 : 0 });
      span.dataset.place = place;
      span.setAttribute("aria-label", name);
      span.setAttribute("aria-selected", "false");
      box.append(span);
      return span;
    },
    take: (place) => take(box.children[place]),
  };
}
