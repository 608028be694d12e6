// Some runs: what differs, what came of it, and their curves in one picture.

import { card, digits, el, fill, keys, query, remember, state, table, to, together } from "./dom.js";
import { ask, follow } from "./net.js";
import { Curves } from "./chart.js";

const MOST = 8;
const letter = (number) => "ABCDEFGH"[number];

export default async function compare(main) {
  const { by = "step", ...wanted } = query();
  const chosen = keys(wanted.keys);
  if (chosen.length < 2 || chosen.length > MOST) {
    fill(main, el("h1", {}, "Compare"), el("p", {}, `Choose two to ${MOST} rows in `, to("/runs", {}, "runs and jobs"), "."));
    return null;
  }
  const all = together(chosen);
  const facts = el("div", {});
  const way = el("select", { "aria-label": "Curves over" }, el("option", { value: "step" }, "over steps"), el("option", { value: "time", selected: by === "time" }, "over time"));
  const curves = el("section", {}, el("div", { class: "titled" }, el("h2", {}, "Curves"), way));
  fill(main, facts, curves);
  const charts = new Curves(curves, true);
  charts.by(by);
  way.addEventListener("change", () => {
    charts.by(way.value);
    remember({ by: way.value === "step" ? "" : way.value });
  });
  const draw = async () => {
    const { rows, settings, results } = await ask("/api/compare", { keys: all });
    document.title = `${rows.map((row) => row.name).join(", ")} · Stokehold studio`;
    const pair = rows.length === 2;
    const letters = rows.map((_, number) => [letter(number), "word"]);
    const known = (value) => value !== null && value !== undefined;
    fill(facts, el("h1", {}, "Compare"),
      rows.map((row, number) => el("p", { class: "side" }, el("b", {}, `${letter(number)} `), to("/run", { key: row.key }, row.name), " ", state(row.state), ` ${row.what}`)),
      pair && el("p", {}, to("/compare", { keys: together([...chosen].reverse()), by: by === "step" ? "" : by }, "Exchange A and B")),
      el("div", { class: pair ? "twins" : "" },
        card("Results", results.length
          ? table([["Result", "word"], ...rows.map((_, number) => [letter(number)]), ...(pair ? [["B − A"]] : [])], results.map(([name, values]) => [name, ...values.map(digits),
            ...(pair ? [values.every(known) ? digits(values[1] - values[0]) : "–"] : [])]), "Results")
          : el("p", { class: "note" }, "None has results yet.")),
        card("Settings that differ", settings.length
          ? table([["Setting", "word"], ...letters], settings.map(([name, values]) => [name, ...values.map((value) => el("span", { class: "break" }, value ?? "–"))]), "Settings that differ")
          : el("p", { class: "note" }, "The settings are the same."))));
  };
  await draw();
  const ended = follow({ view: "several", keys: all }, {
    head: () => draw().catch(() => {}),
    curves: (news) => {
      const prefix = `${letter(news.of)} `;
      if (news.all) charts.all(news.all, prefix);
      else charts.more(news.more, prefix);
    },
  });
  return () => {
    ended();
    charts.close();
  };
}
