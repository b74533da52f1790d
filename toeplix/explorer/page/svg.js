// A pen with the part of the canvas interface that charts use, which writes SVG instead of pixels.

const escaped = (text) => String(text).replace(/[&<>"]/g, (letter) => `&#${letter.charCodeAt(0)};`);
const round = (value) => +value.toFixed(2);

export class SvgPen {
  constructor(width, height, background) {
    Object.assign(this, { width, height, strokeStyle: "#000", fillStyle: "#000", lineWidth: 1, globalAlpha: 1 });
    Object.assign(this, { textAlign: "left", textBaseline: "alphabetic", lineJoin: "miter", font: "12px sans-serif" });
    this.body = [`<rect width="${width}" height="${height}" fill="${escaped(background)}"/>`];
    this.dash = [];
    this.path = [];
    this.open = []; // groups to close at each restore
    this.clips = 0;
  }

  save() {
    this.open.push(0);
  }

  restore() {
    for (let groups = this.open.pop(); groups > 0; groups--) this.body.push("</g>");
  }

  group(attributes) {
    this.body.push(`<g ${attributes}>`);
    this.open[this.open.length - 1] += 1;
  }

  beginPath() {
    this.path = [];
  }

  moveTo(x, y) {
    this.path.push(`M${round(x)} ${round(y)}`);
  }

  lineTo(x, y) {
    this.path.push(`${this.path.length ? "L" : "M"}${round(x)} ${round(y)}`);
  }

  rect(x, y, width, height) {
    this.path.push(`M${round(x)} ${round(y)}h${round(width)}v${round(height)}h${round(-width)}Z`);
  }

  arc(x, y, radius) {
    this.path.push(`M${round(x - radius)} ${round(y)}a${radius} ${radius} 0 1 0 ${2 * radius} 0a${radius} ${radius} 0 1 0 ${-2 * radius} 0Z`);
  }

  clip() {
    const name = `clip${this.clips++}`;
    this.body.push(`<clipPath id="${name}"><path d="${this.path.join("")}"/></clipPath>`);
    this.group(`clip-path="url(#${name})"`);
  }

  setLineDash(dash) {
    this.dash = dash;
  }

  stroke() {
    const dash = this.dash.length ? ` stroke-dasharray="${this.dash.join(" ")}"` : "";
    const look = `fill="none" stroke="${escaped(this.strokeStyle)}" stroke-width="${this.lineWidth}" stroke-opacity="${this.globalAlpha}" stroke-linejoin="${this.lineJoin}"`;
    if (this.path.length) this.body.push(`<path d="${this.path.join("")}" ${look}${dash}/>`);
  }

  fill() {
    if (this.path.length) this.body.push(`<path d="${this.path.join("")}" fill="${escaped(this.fillStyle)}" fill-opacity="${this.globalAlpha}"/>`);
  }

  fillRect(x, y, width, height) {
    this.body.push(`<rect x="${round(x)}" y="${round(y)}" width="${round(width)}" height="${round(height)}" fill="${escaped(this.fillStyle)}"/>`);
  }

  fillText(text, x, y) {
    const anchor = { left: "start", center: "middle", right: "end" }[this.textAlign];
    const base = { top: "hanging", middle: "central", bottom: "text-after-edge" }[this.textBaseline] ?? "auto";
    this.body.push(`<text x="${round(x)}" y="${round(y)}" fill="${escaped(this.fillStyle)}" text-anchor="${anchor}" dominant-baseline="${base}">${escaped(text)}</text>`);
  }

  text() {
    const size = `width="${this.width}" height="${this.height}" viewBox="0 0 ${this.width} ${this.height}"`;
    return `<svg xmlns="http://www.w3.org/2000/svg" ${size} font-family="sans-serif" font-size="12">${this.body.join("")}</svg>\n`;
  }
}
