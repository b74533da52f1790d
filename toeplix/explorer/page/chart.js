// Lines over a horizontal axis: a cursor that reads them, a range that is zoomed into, and SVG of the same.

import { colour, dashes, label, series, sheet, ticks } from "./canvas.js";
import { SvgPen } from "./svg.js";

const EDGE = { left: 52, right: 14, top: 28, bottom: 40 };
const DRAG = 6; // pixels from which a movement is a selection

// lines: [{ x: [], y: [], hue, thin, dashed, dots, name }]; axes: { x, y: words; logx, logy, zero, range: [from, to] }
// read(found, value): what is at the cursor; zoomed(range): a range was selected, null: all of it.
export function chart(canvas, read, zoomed = null) {
  let lines = [];
  let axes = {};
  let cursor = null; // a value across
  let drag = null; // pixels: { from, to }
  let frame = null;

  const redraw = sheet(canvas, (pen, width, height) => {
    frame = paint(pen, width, height, lines, axes, cursor);
    if (frame && drag && Math.abs(drag.to - drag.from) > DRAG) {
      pen.fillStyle = `rgba(${colour("heat")}, 0.16)`;
      pen.fillRect(Math.min(drag.from, drag.to), EDGE.top, Math.abs(drag.to - drag.from), height - EDGE.top - EDGE.bottom);
    }
  });

  const tell = () => read(cursor === null ? [] : lines.map((line) => ({ line, at: nearest(line.x, cursor) })), cursor);
  const move = (value) => {
    cursor = value;
    tell();
    redraw();
  };
  const inside = (pixel) => Math.min(Math.max(pixel, EDGE.left), canvas.clientWidth - EDGE.right);
  canvas.addEventListener("pointerdown", (event) => {
    if (!frame || !zoomed || event.button !== 0) return;
    drag = { from: inside(event.offsetX), to: inside(event.offsetX) };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!frame) return;
    if (drag) drag.to = inside(event.offsetX);
    move(snap(lines, frame.value(event.offsetX)));
  });
  canvas.addEventListener("pointerup", () => {
    const taken = drag;
    drag = null;
    if (taken && frame && Math.abs(taken.to - taken.from) > DRAG)
      zoomed([frame.value(Math.min(taken.from, taken.to)), frame.value(Math.max(taken.from, taken.to))]);
    redraw();
  });
  canvas.addEventListener("pointercancel", () => {
    drag = null;
    redraw();
  });
  canvas.addEventListener("dblclick", () => zoomed?.(null));
  canvas.addEventListener("pointerleave", () => move(null));
  canvas.addEventListener("blur", () => move(null));
  canvas.addEventListener("keydown", (event) => {
    if (frame && zoomed && ["+", "=", "-", "0"].includes(event.key)) {
      event.preventDefault();
      const wanted = event.key === "0" ? null : closer(frame, cursor, event.key === "-" ? 2 : 0.5);
      zoomed(wanted && lines.every((line) => line.x.every((value) => within(value, wanted))) ? null : wanted);
      return;
    }
    const places = [...new Set(lines.flatMap((line) => line.x))].filter((value) => within(value, axes.range)).sort((a, b) => a - b);
    if (!places.length) return;
    const here = cursor === null ? places.length : nearest(places, cursor);
    const stride = Math.max(1, Math.round(places.length / 100));
    const there = { ArrowLeft: here - stride, ArrowRight: here + stride, Home: 0, End: places.length - 1 }[event.key];
    if (there === undefined) return;
    event.preventDefault();
    move(places[Math.min(Math.max(there, 0), places.length - 1)]);
  });
  return {
    draw(drawn, settings) {
      lines = drawn;
      axes = settings;
      if (cursor !== null) tell(); // of these lines, no longer of those before
      redraw();
    },
    svg() {
      const pen = new SvgPen(canvas.clientWidth, canvas.clientHeight, colour("card"));
      paint(pen, pen.width, pen.height, lines, axes, null);
      return pen.text();
    },
  };
}

// Draws everything and returns the scales; null if there is nothing to draw.
function paint(pen, width, height, lines, axes, cursor) {
  const frame = scales(lines, axes, width, height);
  if (!frame) {
    pen.fillStyle = colour("soft");
    pen.textAlign = "center";
    pen.fillText(axes.empty ?? "no data yet", width / 2, height / 2);
    return null;
  }
  grid(pen, frame, axes, width, height);
  pen.save();
  pen.beginPath();
  pen.rect(EDGE.left, EDGE.top - 4, width - EDGE.left - EDGE.right, height - EDGE.top - EDGE.bottom + 8);
  pen.clip();
  for (const line of lines) stroke(pen, frame, line);
  if (cursor !== null) {
    pen.strokeStyle = colour("soft");
    pen.lineWidth = 1;
    pen.setLineDash([3, 3]);
    pen.beginPath();
    pen.moveTo(frame.across(cursor), EDGE.top);
    pen.lineTo(frame.across(cursor), height - EDGE.bottom);
    pen.stroke();
  }
  pen.restore();
  return frame;
}

const within = (value, range) => !range || (value >= range[0] && value <= range[1]);

// Half of the range around the cursor or the middle, or twice the range.
function closer(frame, cursor, factor) {
  const [left, right] = frame.ends;
  const [a, b] = [frame.across(left), frame.across(right)];
  const middle = cursor === null ? (a + b) / 2 : frame.across(cursor);
  const half = ((b - a) / 2) * factor;
  return [frame.value(middle - half), frame.value(middle + half)];
}

function scales(lines, axes, width, height) {
  const points = lines.flatMap((line) => line.x.map((x, index) => [x, line.y[index]]));
  const shown = points.filter(([x, y]) => Number.isFinite(y) && (!axes.logx || x > 0) && (!axes.logy || y > 0) && within(x, axes.range));
  if (!shown.length && !(axes.range && points.length)) return null;
  const least = (values) => values.reduce((a, b) => Math.min(a, b));
  const most = (values) => values.reduce((a, b) => Math.max(a, b));
  const [xs, ys] = shown.length ? [shown.map(([x]) => x), shown.map(([, y]) => y)] : [[1], [1]];
  let [left, right, low, high] = [least(xs), most(xs), least(ys), most(ys)];
  if (!axes.logx && axes.zero) left = Math.min(left, 0);
  if (axes.range) [left, right] = axes.logx ? axes.range.map((value) => Math.max(value, 1e-9)) : axes.range;
  if (left === right) [left, right] = axes.logx ? [left / 2, right * 2] : [left - 1, right + 1];
  if (low === high) [low, high] = axes.logy ? [low / 2, high * 2] : [low - Math.abs(low || 1) / 2, high + Math.abs(high || 1) / 2];
  const margin = axes.logy ? (high / low) ** 0.05 : (high - low) * 0.05;
  [low, high] = axes.logy ? [low / margin, high * margin] : [low - margin, high + margin];
  const [fx, gx] = axes.logx ? [Math.log, Math.exp] : [(v) => v, (v) => v];
  const fy = axes.logy ? Math.log : (v) => v;
  const [wide, tall] = [width - EDGE.left - EDGE.right, height - EDGE.top - EDGE.bottom];
  return {
    ends: [left, right, low, high],
    across: (x) => EDGE.left + ((fx(x) - fx(left)) / (fx(right) - fx(left))) * wide,
    up: (y) => EDGE.top + tall - ((fy(y) - fy(low)) / (fy(high) - fy(low))) * tall,
    value: (pixel) => gx(fx(left) + ((pixel - EDGE.left) / wide) * (fx(right) - fx(left))),
  };
}

function grid(pen, frame, axes, width, height) {
  const [left, right, low, high] = frame.ends;
  pen.lineWidth = 1;
  pen.setLineDash([]);
  pen.strokeStyle = colour("grid");
  pen.fillStyle = colour("soft");
  pen.textAlign = "center";
  pen.textBaseline = "top";
  for (const value of ticks(left, right, axes.logx, Math.max(3, width / 110))) {
    const x = Math.round(frame.across(value)) + 0.5;
    pen.beginPath();
    pen.moveTo(x, EDGE.top);
    pen.lineTo(x, height - EDGE.bottom);
    pen.stroke();
    pen.fillText(label(value), x, height - EDGE.bottom + 6);
  }
  pen.textAlign = "right";
  pen.textBaseline = "middle";
  for (const value of ticks(low, high, axes.logy, Math.max(3, height / 55))) {
    const y = Math.round(frame.up(value)) + 0.5;
    pen.beginPath();
    pen.moveTo(EDGE.left, y);
    pen.lineTo(width - EDGE.right, y);
    pen.stroke();
    pen.fillText(label(value), EDGE.left - 7, y);
  }
  pen.textAlign = "center";
  pen.textBaseline = "bottom";
  pen.fillText(axes.x, (EDGE.left + width - EDGE.right) / 2, height - 4);
  pen.textAlign = "left";
  pen.textBaseline = "top";
  pen.fillText(axes.y, 12, 8);
}

function stroke(pen, frame, line) {
  pen.strokeStyle = pen.fillStyle = series(line.hue);
  pen.globalAlpha = line.thin ? 0.6 : 1;
  pen.lineWidth = line.thin ? 1.1 : 2.4;
  pen.lineJoin = "round";
  pen.setLineDash(line.dashed ? [9, 9] : dashes(line.hue));
  pen.beginPath();
  let open = false;
  for (let i = 0; i < line.x.length; i++) {
    const [x, y] = [frame.across(line.x[i]), frame.up(line.y[i])];
    open = Number.isFinite(x) && Number.isFinite(y) ? (open ? pen.lineTo(x, y) : pen.moveTo(x, y), true) : false;
  }
  pen.stroke();
  pen.setLineDash([]);
  if (line.dots)
    for (let i = 0; i < line.x.length; i++) {
      pen.beginPath();
      pen.arc(frame.across(line.x[i]), frame.up(line.y[i]), 3, 0, 2 * Math.PI);
      pen.fill();
    }
  pen.globalAlpha = 1;
}

// Place of the value that is nearest in a rising list.
export function nearest(values, wanted) {
  let [low, high] = [0, values.length - 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] < wanted) low = middle + 1;
    else high = middle;
  }
  return low > 0 && wanted - values[low - 1] < values[low] - wanted ? low - 1 : low;
}

function snap(lines, value) {
  let best = null;
  for (const line of lines)
    if (line.x.length) {
      const found = line.x[nearest(line.x, value)];
      if (best === null || Math.abs(found - value) < Math.abs(best - value)) best = found;
    }
  return best;
}
