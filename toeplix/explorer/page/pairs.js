// Pairs of tokens of a text: the numbers of one token as bars, and of all tokens as a square.
// Numbers may have a sign: shares are divided by the sum of absolute values of their row.

import { find, tokens } from "./dom.js";
import { colour, sheet } from "./canvas.js";

const EDGE = 10; // pixels around the square of pairs

// prefix: of the ids of text, strip, pairs and read; say(found, place, shares): words for the chosen token.
export function tokenPairs(prefix, say) {
  let found = null; // { tokens, names, rows }
  let place = -1;
  const box = find(`${prefix}-text`);
  const row = tokens(box, choose);
  const strip = sheet(find(`${prefix}-strip`), (pen, width, height) => {
    if (found && place >= 0) bars(pen, width, height, shares(found.rows[place]), found.tokens.length);
  });
  const pairs = sheet(find(`${prefix}-pairs`), (pen, width, height) => {
    if (found) square(pen, width, height, found.rows.map(shares), place);
  });
  find(`${prefix}-pairs`).addEventListener("click", ({ offsetY, target }) => {
    if (found) row.take(Math.floor(((offsetY - EDGE) / (target.clientHeight - 2 * EDGE)) * found.tokens.length));
  });

  function choose(chosen) {
    place = chosen;
    const parts = shares(found.rows[place]);
    const most = largest(parts);
    [...box.children].forEach((span, index) => {
      span.classList.toggle("later", index > place);
      const share = parts[index] ?? 0;
      span.style.backgroundColor = index > place ? "" : `rgba(var(--${hue(share)}), ${(0.75 * Math.min(1, Math.abs(share) / most)).toFixed(3)})`;
    });
    find(`${prefix}-read`).textContent = say(found, place, parts);
    strip();
    pairs();
  }

  return {
    clear() {
      found = null;
      row.clear();
      find(`${prefix}-read`).textContent = "\u00a0";
      strip();
      pairs();
    },
    fill(answer, rows) {
      const before = place;
      found = { ...answer, rows };
      row.clear();
      found.tokens.forEach((token, index) => row.add(token || "·", `${found.names[index]}, position ${index}`));
      row.take(before > 0 && before < found.tokens.length ? before : found.tokens.length - 1);
      if (found.left_out) find(`${prefix}-read`).textContent += ` · ${found.left_out.toLocaleString("en")} tokens at the end are truncated`;
    },
  };
}

const hue = (share) => (share < 0 ? "low" : "heat");

function shares(row) {
  const sum = row.reduce((a, b) => a + Math.abs(b), 0) || 1;
  return row.map((value) => value / sum);
}

// The tokens with the largest shares, in words.
export function top(found, place, parts, count = 4) {
  const best = parts.map((share, index) => [share, index]).sort((a, b) => Math.abs(b[0]) - Math.abs(a[0])).slice(0, count);
  const words = ([share, index]) => `${JSON.stringify(found.names[index])} ${(100 * share).toFixed(0)} %${index === place ? " (itself)" : ` (${place - index} back)`}`;
  return best.map(words).join(", ");
}

// The largest share of an earlier token: that of the token itself is often larger, and would hide the rest.
const largest = (parts) => (parts.length > 1 ? Math.max(...parts.slice(0, -1).map(Math.abs)) : Math.abs(parts[0])) || 1;

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
    pen.fillStyle = `rgba(${colour(hue(share))}, ${index === parts.length - 1 ? 0.45 : 1})`;
    const high = (tall * Math.min(Math.abs(share), 1.05 * most)) / most;
    pen.fillRect(left + index * step + 0.5, top + tall - high, Math.max(1, step - 1), high);
  });
  pen.fillStyle = colour("soft");
  pen.textAlign = "center";
  pen.textBaseline = "bottom";
  const negative = parts.some((share) => share < 0) ? ", orange: negative" : "";
  pen.fillText(`position; pale: itself, ${(100 * parts.at(-1)).toFixed(0)} %${negative}`, (left + width - right) / 2, height - 4);
}

// All pairs: row t, column s; shares on a scale of three decades.
function square(pen, width, height, rows, chosen) {
  const size = rows.length;
  const hues = { heat: colour("heat").split(",").map(Number), low: colour("low").split(",").map(Number) };
  const small = new OffscreenCanvas(size, size);
  const brush = small.getContext("2d");
  const image = brush.createImageData(size, size);
  rows.forEach((row, t) =>
    row.forEach((share, s) => {
      image.data.set(hues[hue(share)], 4 * (t * size + s));
      image.data[4 * (t * size + s) + 3] = 255 * Math.max(0, 1 + Math.log10(Math.max(Math.abs(share), 1e-9)) / 3);
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
