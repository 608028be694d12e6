// One study: best so far, curves of trials, which parameters matter, all trials.

import { bar, calmly, card, digits, duration, el, fill, moment, query, remember, state, table } from "./dom.js";
import { act, ask, follow, GONE, oneAtATime } from "./net.js";
import { Chart, Line } from "./chart.js";
import { notes } from "./notes.js";
import { say } from "./app.js";

// A picture that the server has drawn: nodes of SVG, in which nothing is executed.
function picture(text) {
  const named = text.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ');
  return document.importNode(new DOMParser().parseFromString(named, "image/svg+xml").documentElement, true);
}

export default async function study(main) {
  const { key } = query();
  let sort = query().sort || "number";
  const head = el("div", {}), pictures = el("div", { class: "charts" }), facts = el("div", {}), ways = el("section", { hidden: true });
  const marks = el("div", {});
  const count = el("input", { type: "number", id: "more", min: 1, max: 10000, value: 1, required: true });
  const enough = el("button", { type: "button", id: "enough", hidden: true, onclick: (event) => send("/api/study/end", {}, event.currentTarget) }, "No more jobs");
  const adding = el("form", { class: "bar-of", id: "add-jobs", hidden: true, onsubmit: (event) => {
    event.preventDefault();
    send("/api/study/add", { jobs: Number(count.value) }, event.submitter);
  } }, el("label", { for: "more" }, "Jobs to add"), count, el("button", { type: "submit" }, "Add them"), enough);
  const lost = el("p", { class: "trouble", role: "alert", hidden: true }, GONE);
  fill(main, lost, head, adding, el("section", {}, el("h2", {}, "How it went"), pictures), ways, facts, marks);
  const best = new Chart(pictures, { title: "Best so far, trial by trial", unit: "trial" });
  const trials = new Chart(pictures, { title: "Each trial, step by step" });
  let latest = null, drawn = "", sure = null;

  function draw() {
    const page = latest;
    adding.hidden = !page.can.add;
    enough.hidden = !page.can.end;
    document.title = `${page.row.name} · Stokehold studio`;
    const { counts } = page;
    const over = counts.completed + counts.stopped + counts.failed;
    fill(head, el("p", { class: "eyebrow" }, "Study"), el("h1", {}, page.row.name),
      el("p", {}, state(page.row.state), `  ${page.strategy.toLowerCase()}, to ${page.direction} ${page.objective}; since ${moment(page.created)}`),
      bar(page.most ? over / page.most : 0, `${over} of ${page.most} trials`),
      el("p", { class: "note" }, `${over} of ${page.most} trials: ${counts.completed} completed, ${counts.stopped} stopped early, ${counts.failed} failed, ${counts.running} running`,
        page.row.left ? `; about ${duration(page.row.left)} left` : ""),
      page.parents.length > 0 && el("p", {}, `It builds upon ${page.parents.join(", ")}.`),
      page.best ? el("p", { class: "verdict" }, `Best: ${digits(page.best.value)} of trial ${page.best.number}, with ${page.best.values}`)
        : el("p", { class: "verdict" }, "No trial has a result yet."));
    const better = page.direction.startsWith("min") ? Math.min : Math.max;
    const results = page.trials.filter((trial) => trial.state === "finished" && trial.value !== null);
    let so = page.best_before;
    const line = new Line("best so far"), dots = new Line("trial");
    dots.dots = true;
    for (const trial of results) {
      so = so === null ? trial.value : better(so, trial.value);
      line.push([trial.ended, trial.number, so]);
      dots.push([trial.ended, trial.number, trial.value]);
    }
    best.set([line, dots]);
    const curves = page.trials.filter((trial) => trial.reports.length > 2).map((trial) => {
      const one = new Line(`trial ${trial.number}`);
      for (let at = 0; at < trial.reports.length; at += 2) one.push([null, trial.reports[at], trial.reports[at + 1]]);
      return one;
    });
    trials.figure.hidden = curves.length === 0;
    trials.set(curves);
    const sorted = [...page.trials].sort((one, other) => {
      if (sort === "number") return one.number - other.number;
      const [x, y] = [one.value, other.value];
      if (x === null || y === null) return (x === null) - (y === null);
      return page.direction.startsWith("min") ? x - y : y - x;
    });
    const order = el("select", { "aria-label": "Order of trials", onchange: (event) => {
      sort = event.target.value;
      remember({ sort: sort === "number" ? "" : sort });
      draw();
    } }, el("option", { value: "number" }, "in their order"), el("option", { value: "value", selected: sort === "value" }, "the best first"));
    const word = (text) => [text, "word"];
    const value = (one) => (typeof one === "number" ? digits(one) : one === null || one === undefined ? "–" : String(one).slice(0, 200));
    ways.hidden = !page.parallel;
    if (page.parallel && page.parallel.picture !== drawn) {
      drawn = page.parallel.picture;
      fill(ways, el("h2", {}, "Which values go together"), el("p", { class: "note" }, page.parallel.about),
        el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Which values go together" }, el("div", { class: "wide" }, picture(drawn))));
    }
    // A press more asks whether it is meant; what is drawn anew meanwhile remembers that.
    const stop = (number) => page.stoppable.includes(number) && el("button", { type: "button", class: "small danger", "data-stop": number, onclick: async (event) => {
      const button = event.currentTarget;
      if (sure !== number) {
        sure = number;
        button.textContent = `Stop trial ${number}: press again`;
        setTimeout(() => { if (sure === number) { sure = null; draw(); } }, 4000);
        return;
      }
      sure = null;
      button.disabled = true;
      try {
        await act("/api/trial/stop", { key, trial: number });
        say(`Trial ${number} is asked to stop; what it has reported counts.`);
      } catch (error) {
        say(error.message, true);
      }
      load().catch(() => {});
    } }, sure === number ? `Stop trial ${number}: press again` : `Stop trial ${number}`);
    fill(facts,
      page.importance && card("Which parameters matter",
        el("p", { class: "note" }, "The share of the objective's variation that each explains by itself, by a model of the results (functional ANOVA). Of few trials it says little."),
        table([word("Parameter"), word("Share"), ["Percent"]], page.importance.map(([name, share]) => [name, bar(share, `${Math.round(100 * share)} %`), `${Math.round(100 * share)} %`]), "Importance")),
      el("section", {}, el("div", { class: "titled" }, el("h2", {}, "Trials"), order),
        page.skipped > 0 && el("p", { class: "note" }, `The last ${page.trials.length}; ${page.skipped} before them are not shown.`),
        table([["Trial"], word("State"), [page.objective], ["Took"], ...page.names.map((name) => [name])], sorted.map((trial) => [
          trial.number, [state(trial.state), " ", stop(trial.number), trial.why && el("div", { class: "why" }, trial.why)], trial.value === null ? "–" : digits(trial.value),
          trial.ended ? duration(trial.ended - trial.asked) : "–", ...trial.values.map(value)]), "Trials")));
  }
  async function send(path, what, button) {
    if (button) button.disabled = true;
    try {
      say((await act(path, { key, ...what })).said);
    } catch (error) {
      say(error.message, true);
    }
    if (button) button.disabled = false;
    load().catch(() => {});
  }
  const load = oneAtATime(async () => {
    latest = await ask("/api/study", { key });
    calmly(facts, draw);
  });
  await load();
  fill(marks, notes(key, latest.notes, latest.can.note));
  const ended = follow({ view: "study", key }, { changed: ({ there }) => { lost.hidden = there; load().catch(() => {}); } });
  return () => {
    ended();
    best.close();
    trials.close();
  };
}
