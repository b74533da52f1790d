// Which earlier tokens reach a chosen one along the linear path; one answer holds all pairs of a text.

import { attempt, find, send, short, tokens } from "./dom.js";
import { colour, sheet } from "./canvas.js";

export function reach() {
  let found = null; // { tokens, names, reach }
  let place = -1;
  let model = "";
  let asked = "";
  const box = find("reach-text");
  const row = tokens(box, choose);
  const strip = sheet(find("reach-strip"), (pen, width, height) => {
    if (found && place >= 0) bars(pen, width, height, shares(found.reach[place]), found.tokens.length);
  });

  function choose(chosen) {
    place = chosen;
    const parts = shares(found.reach[place]);
    const most = Math.max(...parts);
    [...box.children].forEach((span, index) => {
      span.classList.toggle("later", index > place);
      span.style.backgroundColor = index > place ? "" : `rgba(var(--heat), ${(0.75 * (parts[index] / most)).toFixed(3)})`;
    });
    const best = parts.map((share, index) => [share, index]).sort((a, b) => b[0] - a[0]).slice(0, 4);
    const words = best.map(([share, index]) => `${JSON.stringify(found.names[index])} ${(100 * share).toFixed(0)} %${index === place ? " (itself)" : ` (${place - index} back)`}`);
    find("reach-read").textContent = `At ${JSON.stringify(found.names[place])}, position ${place}: ${words.join(", ")}`;
    strip();
  }

  async function follow() {
    const text = find("reach-source").value;
    const held = find("reach-held").value;
    asked = JSON.stringify([model, text, held]);
    find("reach-go").disabled = true;
    try {
      const answer = await (await send("/api/reach", { model, text, held })).json();
      const before = place;
      found = answer;
      row.clear();
      found.tokens.forEach((token, index) => row.add(token || "·", `${found.names[index]}, position ${index}`));
      row.take(before > 0 && before < found.tokens.length ? before : found.tokens.length - 1);
      if (found.left_out) find("reach-read").textContent += ` · ${short(found.left_out)} tokens at the end did not fit`;
    } finally {
      find("reach-go").disabled = !model;
    }
  }

  find("reach-form").addEventListener("submit", (event) => {
    event.preventDefault();
    attempt(follow);
  });
  find("reach-held").addEventListener("change", () => attempt(follow));
  return {
    show(name) {
      model = name;
      find("reach-go").disabled = !name;
      const wanted = JSON.stringify([model, find("reach-source").value, find("reach-held").value]);
      if (name && wanted !== asked) attempt(follow);
    },
  };
}

function shares(row) {
  const sum = row.reduce((a, b) => a + b, 0) || 1;
  return row.map((value) => value / sum);
}

// A bar for every token, over the text's length; shares on a scale from 0 to the largest.
function bars(pen, width, height, parts, count) {
  const [left, right, top, bottom] = [46, 12, 14, 22];
  const most = Math.max(...parts);
  const step = (width - left - right) / count;
  const tall = height - top - bottom;
  pen.strokeStyle = colour("grid");
  pen.fillStyle = colour("soft");
  pen.textAlign = "right";
  pen.textBaseline = "middle";
  for (const part of [0, 0.5, 1]) {
    const y = Math.round(top + tall * (1 - part)) + 0.5;
    pen.beginPath();
    pen.moveTo(left, y);
    pen.lineTo(width - right, y);
    pen.stroke();
    pen.fillText(`${(100 * most * part).toFixed(most < 0.1 ? 1 : 0)} %`, left - 6, y);
  }
  parts.forEach((share, index) => {
    pen.fillStyle = `rgba(${colour("heat")}, ${index === parts.length - 1 ? 0.45 : 1})`;
    const high = (tall * share) / most;
    pen.fillRect(left + index * step + 0.5, top + tall - high, Math.max(1, step - 1), high);
  });
  pen.fillStyle = colour("soft");
  pen.textAlign = "center";
  pen.textBaseline = "bottom";
  pen.fillText("position in the text; the palest bar is the token itself", (left + width - right) / 2, height - 4);
}
