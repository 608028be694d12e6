// Two runs: what differs, what came of it, and their curves in one picture.

import { card, digits, el, fill, query, remember, state, table, to } from "./dom.js";
import { ask, follow } from "./net.js";
import { Curves } from "./chart.js";

export default async function compare(main) {
  const { a, b, by = "step" } = query();
  if (!a || !b) {
    fill(main, el("h1", {}, "Compare"), el("p", {}, "Choose two rows in ", to("/runs", {}, "runs and jobs"), "."));
    return null;
  }
  const facts = el("div", {});
  const way = el("select", { "aria-label": "Curves over" }, el("option", { value: "step" }, "over steps"), el("option", { value: "time", selected: by === "time" }, "over time"));
  const curves = el("section", {}, el("div", { class: "titled" }, el("h2", {}, "Curves"), way));
  fill(main, facts, curves);
  const charts = new Curves(curves);
  charts.by(by);
  way.addEventListener("change", () => {
    charts.by(way.value);
    remember({ by: way.value === "step" ? "" : way.value });
  });
  const draw = async () => {
    const pair = await ask("/api/compare", { a, b });
    document.title = `${pair.a.name} and ${pair.b.name} · Stokehold studio`;
    const side = (word, row) => el("p", { class: "side" }, el("b", {}, `${word} `), to("/run", { key: row.key }, row.name), " ", state(row.state), ` ${row.what}`);
    fill(facts, el("h1", {}, "Compare"), side("A", pair.a), side("B", pair.b),
      el("p", {}, to("/compare", { a: b, b: a, by }, "Exchange A and B")),
      el("div", { class: "twins" },
        card("Results", pair.results.length
          ? table([["Result", "word"], ["A"], ["B"], ["B − A"]], pair.results.map(([name, one, other]) => [name, digits(one), digits(other),
            one === null || other === null || one === undefined || other === undefined ? "–" : digits(other - one)]), "Results")
          : el("p", { class: "note" }, "Neither has results yet.")),
        card("Settings that differ", pair.settings.length
          ? table([["Setting", "word"], ["A", "word"], ["B", "word"]], pair.settings.map(([name, one, other]) => [name, el("span", { class: "break" }, one ?? "–"), el("span", { class: "break" }, other ?? "–")]), "Settings that differ")
          : el("p", { class: "note" }, "The settings are the same."))));
  };
  await draw();
  const handlers = (prefix) => ({
    head: () => draw().catch(() => {}),
    curves: (news) => (news.all ? charts.all(news.all, prefix) : charts.more(news.more, prefix)),
  });
  const ends = [follow({ view: "run", key: a }, handlers("A ")), follow({ view: "run", key: b }, handlers("B "))];
  return () => {
    ends.forEach((end) => end());
    charts.close();
  };
}
