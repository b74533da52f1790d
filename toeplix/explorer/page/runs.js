// Loss curves, live: rows are asked for after a cursor, so that a poll costs what is new.

import { ask, attempt, element, find, short } from "./dom.js";
import { series } from "./canvas.js";
import { chart } from "./chart.js";

const FIRST = 4; // runs that are shown before anything was chosen
const HINT = "Move over the curves, or focus them and use the arrow keys.";
const WORDS = { step: "steps", tokens: "tokens", seconds: "seconds" };

export function runs() {
  const known = new Map(); // name: { about, rows, cursor, hue, settings, sample, mark }
  const chosen = new Set();
  let active = false;
  let hues = 0;
  const draw = chart(find("runs-chart"), (found, value) => {
    const words = found
      .filter(({ line }) => line.x.length)
      .map(({ line, at }) => `${line.name} ${line.y[at].toFixed(4)}`);
    find("runs-read").textContent = value === null ? HINT : `${short(value)} ${WORDS[by()]}: ${words.join(" · ")}`;
  });
  const by = () => find("runs-by").value;

  function curves() {
    const kind = find("runs-loss").value;
    const kinds = kind === "both" ? ["loss", "val_loss"] : [kind];
    const lines = [];
    for (const [name, run] of known)
      if (chosen.has(name))
        for (const each of kinds) {
          const rows = run.rows.filter((row) => row[each] !== undefined);
          const validation = each !== "loss";
          let y = rows.map((row) => row[each]);
          if (!validation && find("runs-smooth").checked) y = smooth(y);
          const words = kind === "both" ? `${name}, ${validation ? "validation" : "training"}` : name;
          lines.push({ x: rows.map((row) => row[by()]), y, hue: run.hue, faint: !validation && kind === "both", dots: validation, name: words });
        }
    const unit = kind === "val_bits_per_byte" ? "bits per byte" : "nats per token";
    const axes = { x: WORDS[by()], y: unit, zero: true, empty: chosen.size ? "no rows yet" : "choose a run" };
    draw(lines, { ...axes, logx: find("runs-logx").checked, logy: find("runs-logy").checked });
  }

  function list(found) {
    const box = find("runs-list");
    for (const about of found.runs) {
      let run = known.get(about.name);
      if (!run) {
        run = entry(about, () => toggle(about.name));
        known.set(about.name, run);
        box.append(run.label);
      }
      run.about = about;
      describe(run);
    }
    for (const [name, run] of known)
      if (!found.runs.some((about) => about.name === name)) {
        run.label.remove();
        known.delete(name);
        chosen.delete(name);
      }
    if (!known.size) box.append(...(box.children.length > 1 ? [] : [element("p", { className: "quiet", textContent: "no runs here" })]));
  }

  function toggle(name) {
    if (chosen.has(name)) chosen.delete(name);
    else {
      chosen.add(name);
      known.get(name).hue ??= hues++;
    }
    mark(name);
    refresh(true);
  }

  function mark(name) {
    const run = known.get(name);
    run.box.checked = chosen.has(name);
    run.dot.style.background = chosen.has(name) ? series(run.hue) : "";
    run.dot.style.borderColor = chosen.has(name) ? series(run.hue) : "";
  }

  async function refresh(changed = false) {
    let fresh = changed;
    await Promise.all(
      [...chosen].map(async (name) => {
        const run = known.get(name);
        const resting = run.about.state === "finished" || run.about.state === "damaged";
        if (run.busy || (resting && run.seen === run.about.changed)) return;
        run.busy = true;
        run.failed = "";
        try {
          const stamp = run.about.changed;
          for (let more = true; more; ) {
            const read = await ask("/api/metrics", { name, cursor: run.cursor });
            if (read.again) Object.assign(run, { rows: [], damaged: 0 });
            for (const row of read.rows) run.rows.push(row);
            run.damaged += read.damaged;
            more = read.cursor !== run.cursor && (read.rows.length > 0 || read.damaged > 0);
            fresh ||= read.rows.length > 0 || read.again;
            run.cursor = read.cursor;
          }
          run.seen = stamp;
          run.details ??= await ask("/api/settings", { name });
        } catch (error) {
          run.failed = error.message; // the other runs are well
          run.seen = run.about.changed;
        } finally {
          run.busy = false;
          describe(run);
        }
      }),
    );
    if (fresh) {
      curves();
      tables();
    }
  }

  function tables() {
    const shown = [...chosen].filter((name) => known.get(name)?.details);
    const flat = shown.map((name) => {
      const { model = {}, ...rest } = known.get(name).details.settings;
      return { ...model, ...rest };
    });
    const keys = [...new Set(flat.flatMap(Object.keys))];
    const rows = keys.map((key) => {
      const values = flat.map((each) => each[key]);
      const differs = values.some((value) => value !== values[0]);
      return { key, values, differs };
    });
    const only = find("runs-differ").checked;
    const head = element("tr", {}, element("th", { scope: "col", textContent: "setting" }), ...shown.map((name) => element("th", { scope: "col", textContent: name })));
    const body = rows
      .filter((row) => row.differs || !only)
      .map((row) =>
        element(
          "tr",
          { className: row.differs ? "differs" : "" },
          element("th", { scope: "row", textContent: row.key }),
          ...row.values.map((value) => element("td", { textContent: short(value) })),
        ),
      );
    find("runs-settings").replaceChildren(element("thead", {}, head), element("tbody", {}, ...body));
    const samples = shown.filter((name) => known.get(name).details.sample);
    find("runs-samples").replaceChildren(
      ...samples.flatMap((name) => [
        element("h3", { textContent: name }),
        element("pre", { textContent: known.get(name).details.sample, tabIndex: 0 }),
      ]),
      ...(samples.length ? [] : [element("p", { className: "quiet", textContent: "None: runs write samples every --sample-every steps." })]),
    );
  }

  for (const id of ["runs-loss", "runs-by", "runs-logx", "runs-logy", "runs-smooth"]) find(id).addEventListener("change", curves);
  find("runs-differ").addEventListener("change", tables);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => [...known.keys()].forEach(mark));

  return {
    show() {
      active = true;
      curves();
    },
    hide() {
      active = false;
    },
    update(found) {
      const first = !known.size;
      list(found);
      if (first) {
        const latest = [...known.values()].sort((a, b) => b.about.changed - a.about.changed).slice(0, FIRST);
        const names = latest.map((run) => run.about.name).sort();
        names.forEach((name) => {
          chosen.add(name);
          known.get(name).hue = hues++;
          mark(name);
        });
        attempt(() => refresh(true));
      } else if (active) refresh().catch(() => {});
    },
  };
}

function entry(about, change) {
  const box = element("input", { type: "checkbox" });
  const dot = element("span", { className: "dot" });
  const more = element("span", { className: "more" });
  const name = element("span", { className: "name", textContent: about.name, title: about.name });
  const label = element("label", {}, box, dot, element("span", {}, name, more));
  box.addEventListener("change", change);
  return { about, rows: [], damaged: 0, failed: "", cursor: "", hue: null, box, dot, more, label, busy: false };
}

// What a run does, and what is wrong with it.
function describe({ about, more, damaged, failed }) {
  const progress = `${about.arch} · ${short(about.step)} of ${short(about.steps)} · `;
  const state = element("span", { textContent: about.state, className: `state-${about.state}` });
  const lines = damaged === 1 ? "1 line of metrics.jsonl is damaged" : `${short(damaged)} lines of metrics.jsonl are damaged`;
  const problems = new Set([about.problem, failed, damaged ? lines : ""].filter(Boolean));
  const shown = [...problems].map((words) => element("span", { className: "wrong", textContent: words }));
  more.replaceChildren(progress, state, ...shown);
}

// A running mean that forgets: long noise becomes a line, the first value is kept.
function smooth(values) {
  let mean = values[0];
  return values.map((value) => (mean = 0.85 * mean + 0.15 * value));
}
