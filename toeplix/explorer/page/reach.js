// Reach: which earlier tokens a token reads along the linear path; one response has all pairs of a text.

import { attempt, find, send, short, tokens } from "./dom.js";
import { colour, sheet } from "./canvas.js";

const EDGE = 10; // pixels around the square of pairs

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
  const pairs = sheet(find("reach-pairs"), (pen, width, height) => {
    if (found) square(pen, width, height, found.reach.map(shares), place);
  });
  find("reach-pairs").addEventListener("click", ({ offsetY, target }) => {
    if (found) row.take(Math.floor(((offsetY - EDGE) / (target.clientHeight - 2 * EDGE)) * found.tokens.length));
  });

  function choose(chosen) {
    place = chosen;
    const parts = shares(found.reach[place]);
    const most = largest(parts);
    [...box.children].forEach((span, index) => {
      span.classList.toggle("later", index > place);
      span.style.backgroundColor = index > place ? "" : `rgba(var(--heat), ${(0.75 * Math.min(1, parts[index] / most)).toFixed(3)})`;
    });
    const best = parts.map((share, index) => [share, index]).sort((a, b) => b[0] - a[0]).slice(0, 4);
    const words = best.map(([share, index]) => `${JSON.stringify(found.names[index])} ${(100 * share).toFixed(0)} %${index === place ? " (itself)" : ` (${place - index} back)`}`);
    find("reach-read").textContent = `At ${JSON.stringify(found.names[place])}, position ${place}: ${words.join(", ")}`;
    strip();
    pairs();
  }

  function clear() {
    found = null;
    row.clear();
    find("reach-read").textContent = "\u00a0";
    strip();
    pairs();
  }

  async function follow() {
    const text = find("reach-source").value;
    const linearization = find("reach-linearization").value;
    asked = JSON.stringify([model, text, linearization]);
    find("reach-go").disabled = true;
    try {
      const answer = await (await send("/api/reach", { model, text, linearization })).json();
      const before = place;
      found = answer;
      row.clear();
      found.tokens.forEach((token, index) => row.add(token || "·", `${found.names[index]}, position ${index}`));
      row.take(before > 0 && before < found.tokens.length ? before : found.tokens.length - 1);
      if (found.left_out) find("reach-read").textContent += ` · ${short(found.left_out)} tokens at the end are truncated`;
    } catch (error) {
      clear(); // what is shown belongs to another model or text
      throw error;
    } finally {
      find("reach-go").disabled = !model;
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
      const wanted = JSON.stringify([model, find("reach-source").value, find("reach-linearization").value]);
      if (name && wanted !== asked) attempt(follow);
    },
  };
}

function shares(row) {
  const sum = row.reduce((a, b) => a + b, 0) || 1;
  return row.map((value) => value / sum);
}

// The largest share of an earlier token: that of the token itself is often larger, and would hide the rest.
const largest = (parts) => (parts.length > 1 ? Math.max(...parts.slice(0, -1)) : parts[0]) || 1;

// One bar for each token of the text; the bar of the token itself is clipped at the top.
function bars(pen, width, height, parts, count) {
  const [left, right, top, bottom] = [46, 12, 14, 22];
  const most = largest(parts);
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
    const high = (tall * Math.min(share, 1.05 * most)) / most;
    pen.fillRect(left + index * step + 0.5, top + tall - high, Math.max(1, step - 1), high);
  });
  pen.fillStyle = colour("soft");
  pen.textAlign = "center";
  pen.textBaseline = "bottom";
  pen.fillText(`position in the text; pale: the token itself, ${(100 * parts.at(-1)).toFixed(0)} %`, (left + width - right) / 2, height - 4);
}

// All pairs: row t, column s; shares on a scale of three decades.
function square(pen, width, height, rows, chosen) {
  const size = rows.length;
  const hue = colour("heat").split(",").map(Number);
  const small = new OffscreenCanvas(size, size);
  const brush = small.getContext("2d");
  const image = brush.createImageData(size, size);
  rows.forEach((row, t) =>
    row.forEach((share, s) => {
      image.data.set(hue, 4 * (t * size + s));
      image.data[4 * (t * size + s) + 3] = 255 * Math.max(0, 1 + Math.log10(Math.max(share, 1e-9)) / 3);
    }),
  );
  brush.putImageData(image, 0, 0);
  pen.imageSmoothingEnabled = false;
  const [wide, tall] = [width - 2 * EDGE, height - 2 * EDGE];
  pen.drawImage(small, EDGE, EDGE, wide, tall);
  pen.strokeStyle = colour("line");
  pen.strokeRect(EDGE, EDGE, wide, tall);
  if (chosen >= 0) {
    pen.strokeStyle = colour("ink");
    pen.lineWidth = 1.5;
    pen.strokeRect(EDGE, EDGE + (chosen * tall) / size, wide, tall / size);
  }
  pen.fillStyle = colour("soft");
  pen.textAlign = "right";
  pen.fillText("from s across, to t down", width - 18, 28);
  pen.fillText("0.1 % … 100 %, log", width - 18, 45);
}
