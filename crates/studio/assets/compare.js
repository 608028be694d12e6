// Some runs: what differs, what came of it, and their curves in one picture.

import { calmly, card, digits, el, fill, keys, query, state, table, to, together } from "./dom.js";
import { ask, follow, GONE, oneAtATime } from "./net.js";
import { Curves } from "./chart.js";

const MOST = 8;
const letter = (number) => "ABCDEFGH"[number];

export default async function compare(main) {
  const chosen = keys(query().keys);
  if (chosen.length < 2 || chosen.length > MOST) {
    fill(main, el("h1", {}, "Compare"), el("p", {}, `Choose two to ${MOST} rows in `, to("/runs", {}, "runs and jobs"), "."));
    return null;
  }
  const all = together(chosen);
  const facts = el("div", {}), lost = el("p", { class: "trouble", role: "alert", hidden: true });
  let over = false;
  const curves = el("section", {});
  fill(main, lost, facts, curves);
  const charts = new Curves(curves, true);
  const load = oneAtATime(async () => {
    const answer = await ask("/api/compare", { keys: all });
    if (!over) calmly(facts, () => draw(answer));
  });
  const draw = ({ rows, settings, results }) => {
    document.title = `${rows.map((row) => row.name).join(", ")} · Stokehold studio`;
    const pair = rows.length === 2;
    const letters = rows.map((_, number) => [letter(number), "word"]);
    const known = (value) => value !== null && value !== undefined;
    fill(facts, el("h1", {}, "Compare"),
      rows.map((row, number) => el("p", { class: "side" }, el("b", {}, `${letter(number)} `), to("/run", { key: row.key }, row.name), " ", state(row.state), ` ${row.what}`)),
      pair && el("p", {}, to("/compare", { ...query(), keys: together([...chosen].reverse()) }, "Exchange A and B")),
      el("div", { class: pair ? "twins" : "" },
        card("Results", results.length
          ? table([["Result", "word"], ...rows.map((_, number) => [letter(number)]), ...(pair ? [["B − A"]] : [])], results.map(([name, values]) => [name, ...values.map(digits),
            ...(pair ? [values.every(known) ? digits(values[1] - values[0]) : "–"] : [])]), "Results")
          : el("p", { class: "note" }, "None has results yet.")),
        card("Settings that differ", settings.length
          ? table([["Setting", "word"], ...letters], settings.map(([name, values]) => [name, ...values.map((value) => el("span", { class: "break" }, value ?? "–"))]), "Settings that differ")
          : el("p", { class: "note" }, "The settings are the same."))));
  };
  await load();
  // What is shown of each, by its number.
  const shown = new Map();
  const ended = follow({ view: "several", keys: all }, {
    head: ({ of, row }) => {
      const now = JSON.stringify([row.state, row.what, row.result]);
      if (shown.has(of) && shown.get(of) !== now) load().catch(() => {});
      shown.set(of, now);
      lost.hidden = true;
    },
    gone: ({ of }) => {
      lost.hidden = false;
      lost.textContent = `${letter(of)}: ${GONE}`;
    },
    curves: (news) => {
      const prefix = `${letter(news.of)} `;
      if (news.all) charts.all(news.all, prefix);
      else charts.more(news.more, prefix);
    },
  });
  return () => {
    over = true;
    ended();
    charts.close();
  };
}
