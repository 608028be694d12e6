// What runs now, and what failed.

import { ago, bar, calmly, card, digits, duration, el, fill, percent, state, to } from "./dom.js";
import { follow } from "./net.js";

export const page = (row) => (row.kind === "study" ? "/study" : "/run");

function figure(word, value) {
  return el("div", { class: "figure" }, el("dt", {}, word), el("dd", {}, value));
}

function running({ row, now }) {
  const lately = now?.lately || {};
  const has = (value) => value !== null && value !== undefined;
  const figures = [];
  if (has(lately.cores)) figures.push(figure("cores", percent(lately.cores)));
  if (has(lately.gpus)) figures.push(figure("GPUs", percent(lately.gpus)));
  if (has(lately.wait_share)) figures.push(figure("waits for data", percent(100 * lately.wait_share)));
  if (has(lately.images_per_second)) figures.push(figure("images/s", digits(lately.images_per_second)));
  else if (has(lately.steps_per_second)) figures.push(figure("steps/s", digits(lately.steps_per_second)));
  if (has(row.left)) figures.push(figure("left, about", duration(row.left)));
  if (now?.cost) figures.push(figure("cost so far", `${now.cost.amount.toFixed(2)} ${now.cost.currency}`));
  const notes = [];
  if (has(now?.paused)) notes.push("The profiler is off.");
  else if (has(now?.silent) && now.silent > 15) notes.push(`Silent for ${duration(now.silent)}.`);
  const [done, of] = row.progress || [];
  return el("section", { class: "running" },
    el("h3", {}, to(page(row), { key: row.key }, row.name), " ", el("span", { class: "soft" }, row.what)),
    el("p", { class: "note" }, state(row.state), `  for ${duration(Date.now() / 1000 - row.began - row.idle)}`,
      row.progress && `, ${done} of ${of} ${row.kind === "study" ? "trials" : "epochs"}`, row.result && `, ${row.result}`),
    row.progress && bar(of ? done / of : 0, `${done} of ${of}`),
    figures.length > 0 && el("dl", { class: "figures" }, figures),
    notes.length > 0 && el("p", { class: "note" }, notes.join(" ")));
}

const line = (row) => el("li", {}, state(row.state), " ", to(page(row), { key: row.key }, row.name), " ",
  el("span", { class: "soft" }, [row.what, row.began !== null && ago(row.ended ?? row.began)].filter(Boolean).join(", ")), row.result && el("span", {}, ` ${row.result}`),
  row.why && el("p", { class: "why" }, row.why));

export function troubles(list) {
  return list.length > 0 && el("div", { class: "trouble", role: "alert" }, list.map((text) => el("p", {}, text)));
}

export default async function home(main, session) {
  document.title = "Home · Stokehold studio";
  const place = el("div", {});
  fill(main, el("h1", {}, "Home"), place);
  const draw = (now) => {
    const places = session.places.map((one) => `${one.path}${one.there ? "" : " (not there)"}`).join(", ");
    fill(place,
      troubles(now.troubles),
      el("p", { class: "note", "data-all": now.all }, now.all === 0 && !now.reading
        ? `Nothing is in ${places || "the folders"} yet. Start a run or a job, and it appears here.`
        : [`${now.all.toLocaleString("en").replaceAll(",", " ")} runs, jobs and studies in ${places}${now.reading ? ", and still reading" : ""}. `,
          Object.entries(now.states).map(([word, count], at) => [at ? ", " : "", to("/runs", { state: word, kind: "job,run,study" }, `${count} ${word}`)])]),
      card(now.running_count ? `Running now: ${now.running_count}` : "Nothing runs now",
        now.running_count ? el("div", { class: "grid" }, now.running.map(running))
          : el("p", { class: "note" }, "A run, a job or a study shows up within seconds of its start."),
        now.running_count > now.running.length && el("p", {}, to("/runs", { state: "running", kind: "job,run,study" }, "All that run"))),
      el("div", { class: "twins" },
        card("Failed last", now.failed.length ? el("ul", { class: "rows" }, now.failed.map(line)) : el("p", { class: "note" }, "Nothing has failed.")),
        card("Ended last", now.latest.length ? el("ul", { class: "rows" }, now.latest.map(line)) : el("p", { class: "note" }, "Nothing has ended."))));
  };
  return follow({ view: "home" }, { home: (now) => calmly(place, () => draw(now)) });
}
