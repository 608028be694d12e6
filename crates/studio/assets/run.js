// One run or job, live.

import { address, bar, bytes, calmly, card, clock, digits, duration, el, fill, moment, percent, query, remember, state, table } from "./dom.js";
import { act, ask, follow, GONE } from "./net.js";
import { Curves } from "./chart.js";
import { Heat } from "./heat.js";
import { notes } from "./notes.js";
import { say } from "./app.js";

// Between two looks at verdict and heat map of a run that goes on.
const JUDGE = 5000;
const DETAILS = 15000;
const LINES = 5000;
// Of the profiler, in milliseconds.
const INTERVALS = [100, 200, 500, 1000, 5000, 10000, 60000];

export default async function run(main) {
  const { key } = query();
  const about = await ask("/api/run", { key });
  document.title = `${about.row.name} · Stokehold studio`;

  const head = el("div", { class: "head" });
  const verdict = el("div", {});
  const curves = el("section", {});
  const heat = el("section", { hidden: !about.has_recording });
  const log = el("section", { hidden: true, class: "log-of" });
  const facts = el("div", {});
  fill(main, head, verdict, curves, heat, log, notes(key, about.notes, about.can.note), facts);
  fill(facts, details(about));

  let row = about.row, can = about.can, now = null, gone = false;
  const drawHead = () => {
    const [done, of] = row.progress || [];
    const figures = [];
    const add = (word, value) => figures.push(el("div", { class: "figure" }, el("dt", {}, word), el("dd", {}, value)));
    const lately = now?.lately || {};
    const has = (value) => value !== null && value !== undefined;
    if (row.progress) add("epochs", `${done} of ${of}`);
    if (has(row.left)) add("left, about", duration(row.left));
    const end = row.ended ?? (row.state === "running" ? Date.now() / 1000 : null);
    if (end !== null && row.began !== null) add(row.state === "running" ? "runs for" : "took", duration(end - row.began - row.idle));
    if (has(lately.cores)) add("cores", percent(lately.cores));
    if (has(lately.gpus)) add("GPUs", percent(lately.gpus));
    if (has(lately.wait_share)) add("waits for data", percent(100 * lately.wait_share));
    if (has(lately.images_per_second)) add("images/s", digits(lately.images_per_second));
    else if (has(lately.steps_per_second)) add("steps/s", digits(lately.steps_per_second));
    if (now?.cost) add("cost so far", `${now.cost.amount.toFixed(2)} ${now.cost.currency}`);
    fill(head,
      el("p", { class: "eyebrow" }, row.what),
      el("h1", {}, row.name),
      el("p", {}, state(row.state), row.began !== null && (row.state === "running" ? `  since ${moment(row.began)}` : `  ${moment(row.began)} to ${moment(row.ended)}`), row.result && `  ${row.result}`),
      gone && el("p", { class: "trouble", role: "alert" }, GONE),
      row.why && el("p", { class: "why" }, row.why),
      row.progress && bar(of ? done / of : 0, `${done} of ${of} epochs`),
      el("dl", { class: "figures" }, figures));
  };
  // The buttons stay while the figures above them change, so that nobody's finger misses.
  const buttons = el("div", { class: "buttons" });
  const drawButtons = () => {
    const paused = now?.paused !== null && now?.paused !== undefined;
    // The one that is nearest to what is measured.
    const measured = now?.interval_ms || 500;
    const current = INTERVALS.reduce((best, ms) => (Math.abs(Math.log(ms / measured)) < Math.abs(Math.log(best / measured)) ? ms : best));
    const shown = JSON.stringify([can, paused, row.state, current]);
    if (buttons.dataset.shown === shown) return;
    buttons.dataset.shown = shown;
    const doing = (path, body, done) => async (event) => {
      const button = event.currentTarget;
      button.disabled = true;
      try {
        await act(path, { key, ...body() });
        say(done);
      } catch (error) {
        say(error.message, true);
      }
      button.disabled = false;
    };
    const interval = el("select", { "aria-label": "Interval of the profiler", id: "interval" },
      INTERVALS.map((ms) => el("option", { value: ms, selected: ms === current }, ms < 1000 ? `${ms} ms` : `${ms / 1000} s`)));
    const stop = el("button", { type: "button", class: "danger", id: "stop", onclick: (event) => {
      if (event.currentTarget.dataset.sure) {
        doing("/api/stop", () => ({}), "The job is asked to stop.")(event);
        return;
      }
      const button = event.currentTarget;
      button.dataset.sure = "yes";
      button.textContent = "Stop it: press again";
      setTimeout(() => { delete button.dataset.sure; button.textContent = "Stop"; }, 4000);
    } }, "Stop");
    fill(buttons, can.stop && stop,
      can.clone && el("a", { class: "button", id: "clone", href: `/start?${new URLSearchParams({ key })}` }, "Clone"),
      can.resume && el("button", { type: "button", id: "resume", onclick: doing("/api/resume", () => ({}), "The job continues, in a process of its own.") }, "Resume"),
      can.profiler && [
        el("button", { type: "button", id: "profiler", onclick: doing("/api/profiler", () => ({ on: paused }), paused ? "The profiler continues." : "The profiler pauses.") },
          paused ? "Profiler on" : "Profiler off"),
        interval,
        el("button", { type: "button", id: "set-interval", onclick: doing("/api/profiler", () => ({ interval_ms: Number(interval.value) }), "The interval is set.") }, "Set interval")]);
  };
  head.after(buttons);
  drawHead();
  drawButtons();

  // Curves.
  const charts = new Curves(curves);
  const empty = el("p", { class: "note" }, "It has reported no numbers yet.");
  const many = el("p", { class: "note", hidden: true, role: "status" });
  curves.append(empty, many);

  // Verdict, rules, advice and heat map.
  const map = el("div", {});
  fill(heat, el("h2", {}, "The machine over time"), el("p", { class: "note" }), map);
  let heated = null, timer = 0, over = false;
  async function judge() {
    try {
      const judged = await ask("/api/run/judged", { key });
      if (over) return;
      calmly(verdict, () => drawVerdict(verdict, judged));
      if (judged.heat) {
        const before = heated?.view;
        const whole = before && before.from === 0 && before.to >= heated.seconds - 1e-6;
        const fresh = el("div", { class: "heat" });
        // At its place before it is drawn: it measures its width. The old one stays until the new one is there.
        map.replaceChildren(fresh);
        const drawn = Heat(fresh, [judged.heat]);
        heated = { view: drawn.view, seconds: judged.heat.seconds };
        if (before && !whole) {
          drawn.view.show = before.show;
          drawn.view.set(before.from, before.to);
        }
        heat.querySelector("p.note").textContent = judged.whole ? "All of the run." : `Its last ten minutes, from ${clock(judged.heat.start)} on.`;
      } else heat.querySelector("p.note").textContent = "No sample was taken in this time.";
    } catch (error) {
      if (over) return;
      if (error.status !== 404) fill(verdict, el("p", { class: "trouble", role: "alert" }, error.message));
    }
    if (!over && row.state === "running") timer = setTimeout(() => (document.hidden ? later() : judge()), JUDGE);
  }
  const later = () => { timer = setTimeout(() => (document.hidden ? later() : judge()), JUDGE); };
  // Of a job that has just begun, recording and log come later than the page.
  let recorded = about.has_recording, detailed = Date.now();
  if (recorded) judge();
  let lines = null;
  const ended = follow({ view: "run", key }, {
    head(news) {
      const was = row.state;
      ({ row, can, now } = news);
      gone = false;
      calmly(head, drawHead);
      drawButtons();
      const begins = !recorded && now?.lately;
      recorded ||= Boolean(begins);
      heat.hidden = !recorded;
      const ends = was === "running" && row.state !== "running";
      const again = was !== "running" && row.state === "running";
      if (begins || ((ends || again) && recorded)) {
        clearTimeout(timer);
        // A recorder writes its last samples after the state.
        timer = setTimeout(judge, ends ? 1500 : 0);
      }
      // Results, states and files come with its end, and before it with its checkpoints.
      if (ends || again || (row.state === "running" && Date.now() - detailed > DETAILS && !facts.contains(document.activeElement))) {
        detailed = Date.now();
        ask("/api/run", { key }).then((about) => over || calmly(facts, () => fill(facts, details(about))), () => {});
      }
    },
    curves(news) {
      empty.hidden = true;
      if (news.all) charts.all(news.all);
      else charts.more(news.more);
      if ("left_out" in news) {
        many.hidden = !news.left_out;
        many.textContent = `${news.left_out} more metrics are not shown: a page has the first 64.`;
      }
      empty.hidden = !charts.isEmpty;
    },
    log(part) {
      log.hidden = false;
      lines ||= new Log(log, key);
      lines.add(part);
    },
    gone() {
      gone = true;
      drawHead();
    },
  });
  return () => {
    over = true;
    clearTimeout(timer);
    ended();
    charts.close();
  };
}

function drawVerdict(holder, judged) {
  // ProfilerReport only says whether any of the others fired.
  const fired = judged.findings.filter((finding) => finding.fired && finding.rule !== "ProfilerReport");
  const worth = judged.advice.filter((advice) => advice.worth_it);
  const rule = (finding) => el("li", {}, el("b", {}, finding.rule), " ", finding.summary, finding.recommendation && el("p", { class: "do" }, finding.recommendation));
  const open = holder.querySelector("details")?.open;
  fill(holder, card("Verdict",
    el("p", { class: "verdict" }, judged.verdict || "Nothing stands out."),
    !judged.whole && el("p", { class: "note" }, "Of its last ten minutes; it changes as the run continues."),
    judged.problem_count > 0 && el("p", { class: "note" }, `${judged.problem_count} parts of the recording could not be read: ${judged.problems.join("; ")}`),
    worth.length > 0 && [el("h3", {}, "What would gain most"), el("ul", { class: "advice" }, worth.map((advice) => el("li", {},
      el("b", {}, `${advice.title}: ${advice.gain_percent.toFixed(0)} % less time`),
      ` (${duration(advice.seconds_per_epoch)} an epoch). ${advice.why} `,
      advice.flags.length > 0 && el("code", {}, advice.flags.join(" ")))))],
    fired.length > 0 && [el("h3", {}, `Rules that fired: ${fired.length}`), el("ul", { class: "fired" }, fired.map(rule))],
    el("details", { open }, el("summary", {}, `All ${judged.findings.length} rules`),
      table([["Rule", "word"], ["Fired", "word"], ["Finding", "word"]], judged.findings.map((finding) => [
        finding.rule, finding.fired ? "yes" : finding.judged ? "no" : "not judged", finding.summary]), "Rules"))));
}

function details(about) {
  const word = (text) => [text, "word"];
  const parts = [];
  if (about.job) {
    const job = about.job;
    const steps = job.states.map(([name, start], at) => {
      const next = job.states[at + 1];
      return [name, moment(start), next ? duration(next[1] - start) : "–"];
    });
    parts.push(card("States", table([word("State"), word("Since"), ["For"]], steps, "States"),
      job.reason && el("p", { class: "why" }, job.reason),
      job.model && el("p", {}, "Model: ", el("code", {}, job.model)), job.output && el("p", {}, "Output: ", el("code", {}, job.output)),
      job.checkpoints && el("p", {}, `Checkpoints: ${job.checkpoints.files} files, ${bytes(job.checkpoints.bytes)} at `, el("code", {}, job.checkpoints.uri)),
      job.spot && job.spot.savings !== null && el("p", {}, `Spot: ${job.spot.interruptions} interruptions, savings ${percent(100 * job.spot.savings)}`)));
  }
  if (about.results.length) parts.push(card("Results", table([word("Result"), ["Value"]], about.results.map(([name, value]) => [name, digits(value)]), "Results")));
  parts.push(card("Settings", about.settings.length
    ? table([word("Setting"), word("Value")], about.settings.map(([name, value]) => [name, el("span", { class: "break" }, value)]), "Settings")
    : el("p", { class: "note" }, "None are recorded.")));
  const { shown, more, is_cut } = about.files;
  const link = (file) => el("a", { href: address("/api/run/file", { key: about.row.key, name: file.name }), download: "", target: "_blank" }, file.shown);
  parts.push(card("Checkpoints and files", el("p", { class: "note" }, el("code", {}, about.folder)),
    shown.length > 0 && table([word("File"), ["What"], ["Size"], ["Written"]], shown.map((file) => [link(file), file.what, bytes(file.bytes), moment(file.time)]), "Checkpoints and files"),
    (more > 0 || is_cut) && el("p", { class: "note" }, `The latest of them; ${is_cut ? "there are more than can be looked at" : `${more} are older`}.`)));
  return el("div", { class: "twins" }, parts);
}

// A log that follows, with what came before and a search.
class Log {
  constructor(holder, key) {
    this.key = key;
    this.from = 0;
    this.lines = el("div", { class: "log", tabindex: "0", role: "log", "aria-label": "Log", "aria-live": "off" });
    this.found = el("div", { class: "log found", tabindex: "0", role: "region", "aria-label": "Lines found", hidden: true });
    this.note = el("p", { class: "note", role: "status" });
    this.follows = el("input", { type: "checkbox", checked: true, id: "follows" });
    this.earlier = el("button", { type: "button", class: "small", hidden: true, onclick: () => this.before() }, "Earlier lines");
    const search = el("input", { type: "search", placeholder: "search in all of the log", "aria-label": "Search the log", autocomplete: "off", spellcheck: "false" });
    search.value = query().log || "";
    let timer = 0;
    const begin = () => {
      clearTimeout(timer);
      remember({ log: search.value });
      this.search(search.value, 0);
    };
    search.addEventListener("keydown", (event) => { if (event.key === "Enter") begin(); });
    search.addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(begin, 300);
    });
    this.lines.addEventListener("scroll", () => {
      const atEnd = this.lines.scrollTop + this.lines.clientHeight > this.lines.scrollHeight - 40;
      this.follows.checked = atEnd;
    });
    fill(holder, el("div", { class: "titled" }, el("h2", {}, "Log"),
      el("span", { class: "tools" }, search, el("label", {}, this.follows, " follow"))), this.note, this.found, this.earlier, this.lines);
    if (search.value) this.search(search.value, 0);
  }

  line(line) {
    return el("div", { class: line.is_error ? "line err" : "line", "data-at": line.at },
      line.time !== null && el("span", { class: "at" }, `${clock(line.time)} `),
      line.host && el("span", { class: "host" }, `${line.host} `), line.text);
  }

  add(part) {
    if (part.anew) {
      this.lines.replaceChildren();
      this.from = part.from;
    }
    // A line that has no end yet comes again with its end, or longer.
    this.tail?.remove();
    this.tail = part.tail && this.line(part.tail);
    this.lines.append(...part.lines.map((line) => this.line(line)), ...(this.tail ? [this.tail] : []));
    // Whoever reads earlier lines keeps them for longer.
    const most = this.follows.checked ? LINES : 4 * LINES;
    if (this.lines.childElementCount > most) {
      while (this.lines.childElementCount > most) this.lines.firstChild.remove();
      this.from = Number(this.lines.firstChild.dataset.at);
    }
    this.earlier.hidden = this.from === 0;
    if (this.follows.checked) this.lines.scrollTop = this.lines.scrollHeight;
  }

  async before() {
    this.earlier.disabled = true;
    let part;
    try {
      part = await ask("/api/run/log", { key: this.key, before: this.from });
    } catch (error) {
      this.note.textContent = error.message;
      return;
    } finally {
      this.earlier.disabled = false;
    }
    const height = this.lines.scrollHeight;
    this.lines.prepend(...part.lines.map((line) => this.line(line)));
    this.from = part.lines.length ? part.from : 0;
    this.earlier.hidden = this.from === 0;
    this.follows.checked = false;
    this.lines.scrollTop = this.lines.scrollHeight - height;
  }

  async search(words, from) {
    this.asked = words;
    if (!words.trim()) {
      this.found.hidden = true;
      this.note.textContent = "";
      return;
    }
    try {
      const part = await ask("/api/run/log", { key: this.key, search: words, from });
      // Meanwhile somebody has typed on.
      if (this.asked !== words) return;
      const more = part.to < part.length;
      this.found.hidden = false;
      if (!from) this.found.replaceChildren();
      this.found.querySelector("button")?.remove();
      this.found.append(...part.lines.map((line) => this.line(line)));
      this.note.textContent = `${this.found.childElementCount} lines${more ? " so far" : ""} with “${words}”`;
      if (more) this.found.append(el("button", { type: "button", class: "small", onclick: () => this.search(words, part.to) }, "Search on"));
    } catch (error) {
      this.note.textContent = error.message;
    }
  }
}
