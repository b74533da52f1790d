// A canvas in the resolution of the screen and the colours of the style sheet, redrawn when they change.

export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

export const series = (index) => colour(`s${index % 8}`);
export const dashes = (index) => [[], [7, 4], [2, 3]][Math.floor(index / 8) % 3];

export function sheet(canvas, draw) {
  const again = () => {
    const { clientWidth: width, clientHeight: height } = canvas;
    if (!width || !height) return; // in a panel that is not shown
    const ratio = window.devicePixelRatio || 1;
    const [across, up] = [Math.round(width * ratio), Math.round(height * ratio)];
    if (canvas.width !== across || canvas.height !== up) Object.assign(canvas, { width: across, height: up });
    const pen = canvas.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, height);
    pen.font = "12px system-ui, sans-serif";
    draw(pen, width, height);
  };
  let waiting = false;
  const soon = () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      again();
    });
  };
  new ResizeObserver(soon).observe(canvas);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", soon);
  return soon;
}

// Round numbers between two ends, on a plain or a logarithmic axis.
export function ticks(low, high, logarithmic, count) {
  if (logarithmic) {
    const found = [];
    const decades = Math.log10(high / low);
    const steps = decades > count ? [1] : decades > 1.5 ? [1, 2, 5] : [1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9];
    for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++)
      for (const step of steps) {
        const value = step * 10 ** power;
        if (value >= low && value <= high) found.push(value);
      }
    const skip = Math.ceil(found.length / count);
    return found.filter((_, index) => index % skip === 0);
  }
  const raw = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((n) => n * power).find((n) => n >= raw);
  const found = [];
  for (let value = Math.ceil(low / step) * step; value <= high + step * 1e-9; value += step) found.push(value);
  return found;
}

export function label(value) {
  const size = Math.abs(value);
  if (size >= 1e9) return `${+(value / 1e9).toPrecision(3)}G`;
  if (size >= 1e6) return `${+(value / 1e6).toPrecision(3)}M`;
  if (size >= 1e4) return `${+(value / 1e3).toPrecision(3)}k`;
  if (size && size < 1e-3) return value.toExponential(0);
  return String(+value.toPrecision(4));
}
