// All runs and jobs: filtered and sorted by the server, a part of them at a time.

import { address, ago, calmly, duration, el, fill, keys, query, remember, state, to, together } from "./dom.js";
import { ask, follow } from "./net.js";
import { page, troubles } from "./home.js";
import { tags } from "./notes.js";
import { go } from "./app.js";

const COUNT = 100;
// How many runs are compared.
const MOST = 8;
const COLUMNS = [["name", "Name"], ["what", "What"], ["state", "State"], ["began", "Began"], ["took", "Took"], ["", "Progress"], ["result", "Result"]];

export default async function runs(main) {
  document.title = "Runs and jobs · Stokehold studio";
  const wanted = { text: "", state: "", kind: "job,run", sort: "-began", from: 0, ...query() };
  wanted.from = Number(wanted.from) || 0;
  const chosen = new Set(keys(wanted.chosen));
  let latest = null, asked = 0, current = null;

  const search = el("input", { type: "search", value: wanted.text, placeholder: "words in name, kind, tags, result or reason", "aria-label": "Filter", autocomplete: "off", spellcheck: "false" });
  const states = el("div", { class: "states", role: "group", "aria-label": "States" });
  const place = el("div", {});
  const pair = el("p", { class: "pair-of", role: "status" });
  fill(main, el("h1", {}, "Runs and jobs"), el("div", { class: "bar-of" }, search, states), pair, place);

  const set = (changes) => {
    Object.assign(wanted, changes);
    const { text, state: of, sort, from } = wanted;
    remember({ text, state: of, sort: sort === "-began" ? "" : sort, from: from || "", chosen: together([...chosen]) });
    load();
  };
  let timer = 0;
  search.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(() => set({ text: search.value, from: 0 }), 150);
  });

  async function load() {
    const own = ++asked;
    const { text, state: of, kind, sort, from } = wanted;
    try {
      const answer = await ask("/api/runs", { text, state: of, kind, sort, from, count: COUNT });
      if (own !== asked) return;
      latest = answer;
      calmly(place, draw);
    } catch (error) {
      if (own === asked) fill(place, el("p", { class: "trouble", role: "alert" }, error.message));
    }
  }

  function choose(row, is) {
    if (is) chosen.add(row.key);
    else chosen.delete(row.key);
    remember({ chosen: together([...chosen]) });
    told();
  }
  function told() {
    fill(pair, chosen.size === 0 ? `Choose two rows or more, ${MOST} at most, to compare them.`
      : chosen.size < 2 || chosen.size > MOST ? [`${chosen.size} chosen; two to ${MOST} can be compared. `, clear()]
        : [to("/compare", { keys: together([...chosen]) }, `Compare the ${chosen.size} chosen`), " ", clear()]);
  }
  const clear = () => el("button", { type: "button", class: "small", onclick: () => { chosen.clear(); set({}); told(); } }, "Choose none");

  function draw() {
    const all = Object.values(latest.states).reduce((sum, count) => sum + count, 0);
    const word = (of, count) => el("button", { type: "button", "aria-pressed": String(wanted.state === of), onclick: () => set({ state: of, from: 0 }) },
      of === "" ? `all ${count}` : [state(of), ` ${count}`]);
    const focused = document.activeElement;
    const again = place.contains(focused) ? focused.dataset.focus : null;
    fill(states, word("", all), Object.entries(latest.states).map(([of, count]) => word(of, count)));
    const head = COLUMNS.map(([column, heading]) => {
      const is = wanted.sort.replace("-", "") === column && column;
      const down = wanted.sort.startsWith("-");
      return el("th", { scope: "col", class: "word", "aria-sort": is ? (down ? "descending" : "ascending") : null },
        column ? el("button", { type: "button", class: "sort", "data-focus": `sort ${column}`, onclick: () => set({ sort: is && down ? column : is ? `-${column}` : column === "began" ? "-began" : column, from: 0 }) },
          heading, is ? (down ? " ↓" : " ↑") : "") : heading);
    });
    const rows = latest.rows.map((row) => {
      const [done, of] = row.progress || [];
      const end = row.ended ?? (row.state === "running" ? Date.now() / 1000 : null);
      const cell = (label, ...children) => el("td", { class: "word", "data-is": label }, children);
      // A study has a page of its own kind, and is compared with nothing.
      return el("tr", { class: row.key === current ? "current" : null },
        el("td", { class: "choice", "data-is": "Choose" }, row.kind !== "study" && el("input", { type: "checkbox", checked: chosen.has(row.key), "data-focus": `row ${row.key}`, "aria-label": `Choose ${row.name}`, onchange: (event) => choose(row, event.target.checked) })),
        cell("Name", to(page(row), { key: row.key }, row.name), tags(row.tags), row.why && el("div", { class: "why" }, row.why)),
        cell("What", row.what), cell("State", state(row.state)), cell("Began", ago(row.began)),
        cell("Took", end === null || row.began === null ? "–" : duration(end - row.began - row.idle)),
        cell("Progress", row.progress ? `${done}/${of}` : "–"), cell("Result", row.result || "–"));
    });
    const last = Math.min(latest.from + COUNT, latest.total);
    const turn = (text, from, is) => el("button", { type: "button", disabled: !is, "data-focus": text, onclick: () => set({ from }) }, text);
    fill(place, troubles(latest.troubles),
      latest.total === 0 ? el("p", { class: "note" }, latest.reading ? "Reading the folders .." : "Nothing fits.")
        : el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Runs and jobs" }, el("table", { class: "runs" },
          el("thead", {}, el("tr", {}, el("td", {}), head)), el("tbody", {}, rows))),
      el("p", { class: "turn" }, turn("◀ Before", Math.max(0, latest.from - COUNT), latest.from > 0), " ",
        turn("Next ▶", latest.from + COUNT, last < latest.total),
        el("span", { class: "soft" }, latest.total ? ` ${latest.from + 1} to ${last} of ${latest.total}` : "", latest.reading ? ", still reading" : "")));
    if (again) place.querySelector(`[data-focus="${CSS.escape(again)}"]`)?.focus();
    told();
  }

  const press = (event) => {
    if (event.metaKey || event.ctrlKey || event.altKey || event.target.closest?.("input[type=search], select, dialog") || !latest) return;
    const by = { j: 1, k: -1 }[event.key];
    const at = latest.rows.findIndex((one) => one.key === current);
    const row = latest.rows[at];
    if (by) {
      current = latest.rows[Math.max(0, Math.min(latest.rows.length - 1, at + by))]?.key ?? null;
      draw();
      place.querySelector("tr.current")?.scrollIntoView({ block: "nearest" });
    } else if (event.key === "Enter" && row && !event.target.closest?.("a, button, input")) go(address(page(row), { key: row.key }));
    else if (event.key === "x" && row && row.kind !== "study") {
      choose(row, !chosen.has(row.key));
      draw();
    }
  };
  document.addEventListener("keydown", press);
  await load();
  const ended = follow({ view: "list" }, { changed: load });
  return () => {
    ended();
    clearTimeout(timer);
    document.removeEventListener("keydown", press);
  };
}
