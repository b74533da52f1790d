// The list of runs, live: rows are asked for after a cursor, so that a poll costs what is new.

import { ask, attempt, element, find, short } from "./dom.js";
import { series } from "./canvas.js";
import { plots } from "./run_plots.js";
import { tables } from "./run_tables.js";

const FIRST = 4; // runs that are shown before anything was chosen

export function runs() {
  const known = new Map(); // name: { about, rows, cursor, hue, details, ... }
  const chosen = new Set();
  let active = false;
  let hues = 0;
  const shown = () => [...known].filter(([name]) => chosen.has(name)).map(([name, run]) => ({ ...run, name }));
  const { draw } = plots(shown);

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
    find("runs-empty").hidden = known.size > 0;
    search();
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
      draw();
      tables(shown());
    }
  }

  // Runs whose name, architecture or differing settings have all words of the search.
  function search() {
    const words = find("runs-search").value.toLowerCase().split(/\s+/).filter(Boolean);
    let hidden = 0;
    for (const { about, label } of known.values()) {
      const text = [about.name, about.arch, about.state, about.apart].join(" ").toLowerCase();
      label.hidden = !words.every((word) => text.includes(word));
      hidden += label.hidden;
    }
    find("runs-none").hidden = !known.size || hidden < known.size;
  }

  find("runs-search").addEventListener("input", search);
  find("runs-differ").addEventListener("change", () => tables(shown()));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => [...known.keys()].forEach(mark));

  return {
    show() {
      active = true;
      draw();
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
  const apart = about.apart ? [element("span", { className: "apart", textContent: about.apart, title: about.apart })] : [];
  const lines = damaged === 1 ? "1 line of metrics.jsonl is damaged" : `${short(damaged)} lines of metrics.jsonl are damaged`;
  const problems = new Set([about.problem, failed, damaged ? lines : ""].filter(Boolean));
  const shown = [...problems].map((words) => element("span", { className: "wrong", textContent: words }));
  more.replaceChildren(progress, state, ...apart, ...shown);
}
