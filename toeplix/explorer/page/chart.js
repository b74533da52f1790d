// Lines over a horizontal axis, with a cursor that reads them: by pointer, or by arrow keys.

import { colour, dashes, label, series, sheet, ticks } from "./canvas.js";

const EDGE = { left: 54, right: 14, top: 12, bottom: 40 };

// lines: [{ x: [], y: [], hue, faint, dots, name }]; axes: { x, y: words; logx, logy, zero }
export function chart(canvas, read) {
  let lines = [];
  let axes = {};
  let cursor = null; // a value across
  let frame = null;

  const redraw = sheet(canvas, (pen, width, height) => {
    frame = scales(lines, axes, width, height);
    if (!frame) {
      pen.fillStyle = colour("soft");
      pen.textAlign = "center";
      pen.fillText(axes.empty ?? "nothing to draw yet", width / 2, height / 2);
      return;
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
  });

  const move = (value) => {
    cursor = value;
    read(value === null ? [] : lines.map((line) => ({ line, at: nearest(line.x, value) })), value);
    redraw();
  };
  canvas.addEventListener("pointermove", (event) => {
    if (frame) move(snap(lines, frame.value(event.offsetX)));
  });
  canvas.addEventListener("pointerleave", () => move(null));
  canvas.addEventListener("blur", () => move(null));
  canvas.addEventListener("keydown", (event) => {
    const places = [...new Set(lines.flatMap((line) => line.x))].sort((a, b) => a - b);
    if (!places.length) return;
    const here = cursor === null ? places.length : nearest(places, cursor);
    const stride = Math.max(1, Math.round(places.length / 100));
    const there = { ArrowLeft: here - stride, ArrowRight: here + stride, Home: 0, End: places.length - 1 }[event.key];
    if (there === undefined) return;
    event.preventDefault();
    move(places[Math.min(Math.max(there, 0), places.length - 1)]);
  });
  return (drawn, settings) => {
    lines = drawn;
    axes = settings;
    redraw();
  };
}

function scales(lines, axes, width, height) {
  const xs = lines.flatMap((line) => line.x).filter((value) => !axes.logx || value > 0);
  const ys = lines.flatMap((line) => line.y).filter((value) => !axes.logy || value > 0);
  if (!xs.length || !ys.length) return null;
  const least = (values) => values.reduce((a, b) => Math.min(a, b));
  const most = (values) => values.reduce((a, b) => Math.max(a, b));
  let [left, right, low, high] = [least(xs), most(xs), least(ys), most(ys)];
  if (!axes.logx && axes.zero) left = Math.min(left, 0);
  if (left === right) [left, right] = axes.logx ? [left / 2, right * 2] : [left - 1, right + 1];
  if (low === high) [low, high] = axes.logy ? [low / 2, high * 2] : [low - 1, high + 1];
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
  pen.save();
  pen.translate(12, (EDGE.top + height - EDGE.bottom) / 2);
  pen.rotate(-Math.PI / 2);
  pen.textBaseline = "middle";
  pen.fillText(axes.y, 0, 0);
  pen.restore();
}

function stroke(pen, frame, line) {
  pen.strokeStyle = pen.fillStyle = series(line.hue);
  pen.globalAlpha = line.faint ? 0.42 : 1;
  pen.lineWidth = line.faint ? 1.2 : 2;
  pen.lineJoin = "round";
  pen.setLineDash(dashes(line.hue));
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
