// This machine: its cores, memory, disks, network and GPUs over the last minutes.

import { bar, bytes, card, el, fill, percent, table } from "./dom.js";
import { ask, connected } from "./net.js";
import { Chart, Line } from "./chart.js";
import { Heat } from "./heat.js";

const EVERY = 2000;
const rate = (value) => (value === null || value === undefined ? "–" : bytes(Math.max(0, Math.round(value))));

export default async function machine(main) {
  document.title = "This machine · Stokehold studio";
  const head = el("div", {}), pictures = el("div", { class: "charts" }), map = el("div", {}), room = el("div", {});
  const heat = el("section", { hidden: true }, el("h2", {}, "Cores and GPUs over time"),
    el("p", { class: "note" }, "A row for each; the darker, the busier. Drag over a time to look closer."), map);
  const over_time = el("section", { hidden: true }, el("h2", {}, "Over the last minutes"), pictures);
  fill(main, el("h1", {}, "This machine"), head, heat, over_time, room);
  const charts = new Map();
  let timer = 0, over = false, drawn = null, view = null;

  const draw = (now) => {
    const about = now.machine || {}, lately = now.lately || {};
    const has = (value) => value !== null && value !== undefined;
    const figure = (word, value) => el("div", { class: "figure" }, el("dt", {}, word), el("dd", {}, value));
    fill(head,
      el("p", {}, [about.cpu, has(about.cores) && `${about.cores} cores`, about.memory && `${bytes(about.memory)} of memory`, about.gpu, about.instance].filter(Boolean).join(", ")),
      el("dl", { class: "figures" }, has(lately.cores) && figure("cores", percent(lately.cores)), has(lately.memory) && figure("memory", percent(lately.memory)),
        has(lately.gpus) && figure("GPUs", percent(lately.gpus))),
      !has(lately.at) && el("p", { class: "note", role: "status" }, "It is sampled from now on; the first figures come in a moment."),
      now.notes?.length > 0 && el("p", { class: "note" }, now.notes.join("; ")));
    for (const { title, lines } of now.charts || []) {
      if (!charts.has(title)) charts.set(title, new Chart(pictures, { title, by: "time", ...(title.includes("bytes") ? { words: rate } : {}), ...(title.includes("percent") ? { within: [0, 100] } : {}) }));
      charts.get(title).set(lines.map(({ name, points }) => new Line(name, points)));
    }
    over_time.hidden = charts.size === 0;
    heat.hidden = !now.heat;
    if (now.heat && !map.contains(document.activeElement)) {
      // A part that somebody looks at stays as it is.
      const is_whole = !view || (view.from === 0 && view.to >= drawn - 1e-6);
      if (is_whole) {
        const fresh = el("div", { class: "heat" });
        map.replaceChildren(fresh);
        ({ view } = Heat(fresh, [now.heat]));
        drawn = now.heat.seconds;
      }
    }
    fill(room, now.disks.length > 0 && card("Room on disks", table([["Folder", "word"], ["", "word"], ["Free"], ["Of"]], now.disks.map(([folder, free, all]) => [
      el("code", {}, folder), bar(all ? 1 - free / all : 0, `${Math.round(all ? 100 * (1 - free / all) : 0)} % are used`), bytes(free), bytes(all)]), "Room on disks")));
  };
  async function look() {
    try {
      if (!document.hidden) {
        const now = await ask("/api/machine");
        if (over) return;
        connected("live");
        draw(now);
      }
    } catch (error) {
      if (over) return;
      if (error.status) fill(head, el("p", { class: "trouble", role: "alert" }, error.message));
      connected(error.status === 401 ? "stranger" : error.status ? "rest" : "lost");
    }
    timer = setTimeout(look, EVERY);
  }
  await look();
  return () => {
    over = true;
    clearTimeout(timer);
    connected("rest");
    for (const chart of charts.values()) chart.close();
  };
}
