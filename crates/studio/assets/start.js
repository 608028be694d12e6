// Starts a job: by a form, from a file, or from a past job. The server judges every change as `stokehold job run` would.

import { el, fill, query, remember, to } from "./dom.js";
import { act, ask } from "./net.js";
import { fields, ordered, prose, resolved } from "./form.js";
import { go, say } from "./app.js";

// After the last key, before the server is asked.
const PAUSE = 300;
// What most jobs need stands first; all other keys follow.
const FIRST = ["entry-point", "source-dir", "name", "hyperparameters", "channels", "environment"];

export default async function start(main, session) {
  document.title = "Start · Stokehold studio";
  if (!session.can_start) {
    fill(main, el("h1", {}, "Start a job"), el("p", { class: "note" }, session.trouble ? session.trouble : session.read_only
      ? "This studio is read-only (--read-only): nothing can be started from it."
      : "This studio has no folder of jobs: nothing can be started from it."));
    return null;
  }
  const { file, key, by = key ? "form" : file ? "text" : "form" } = query();
  const from = file ? { file } : key ? { key } : {};
  const [{ schema, folder: jobs }, source] = await Promise.all([ask("/api/start/schema"), ask("/api/start/text", from)]);
  const top = resolved(schema, schema);
  // `text` is the job; `values` is the same for the form, if the text can be read.
  // What was typed stays with this tab, under what it began with.
  const slot = `start ${key || file || ""}`;
  const draft = sessionStorage.getItem(slot);
  let text = draft ?? source.text, values = {}, asked = 0, timer = 0, over = false, view = by, typed = draft !== null;

  const button = el("button", { type: "button", class: "go", id: "start", disabled: true }, "Start the job");
  const verdict = el("div", { class: "verdict-of", id: "fault", role: "status" });
  const body = el("div", {});
  const tab = (name, word) => el("button", { type: "button", id: `by-${name}`, "aria-pressed": "false", onclick: () => turn(name) }, word);
  const tabs = [tab("form", "As a form"), tab("text", "As a file")];

  const choice = el("select", { id: "from", "aria-label": "Begin with", onchange: (event) => go(event.target.value) },
    el("option", { value: "/start" }, "a new job"),
    key && el("option", { value: `/start?${new URLSearchParams({ key })}`, selected: true }, `a copy of ${key}`),
    file && el("option", { value: `/start?${new URLSearchParams({ file })}`, selected: true }, file));
  ask("/api/start/files").then(({ files, whole }) => {
    choice.append(...files.filter((name) => name !== file).map((name) => el("option", { value: `/start?${new URLSearchParams({ file: name })}` }, name)));
    if (!whole) choice.append(el("option", { disabled: true }, "and more: not all of the folders were looked through"));
  }).catch((error) => say(error.message, true));

  fill(main, el("h1", {}, "Start a job"),
    el("p", { class: "note" }, "It runs as ", el("code", {}, "stokehold job run --detach"), " runs it, on the studio's machine and as its user, and continues when the studio ends. ",
      "Relative paths are meant from ", el("code", {}, source.folder), file ? ", the file's folder." : ", the folder of the jobs.",
      key && [" It is a copy of ", to("/run", { key }, key), ": it runs the code that lies at the same place now, and values that are (hidden) are taken from there."]),
    draft !== null && el("p", { class: "note", id: "draft" }, "This is what you typed here before. ",
      el("button", { type: "button", class: "small", onclick: () => { sessionStorage.removeItem(slot); go(location.pathname + location.search); } }, "Begin anew")),
    el("section", {}, el("div", { class: "bar-of" }, el("label", { for: "from" }, "Begin with"), choice, el("span", { class: "states", role: "group", "aria-label": "Show it" }, tabs)), body),
    el("div", { class: "start-bar" }, verdict, button));

  // Whether the form says something that the text does not: numbers that pass through here may lose digits, or a .0.
  let edited = !(file || key);
  const show = (next) => {
    view = next;
    remember({ by: next });
    tabs.forEach((one) => one.setAttribute("aria-pressed", String(one.id === `by-${next}`)));
    fill(body, next === "form" ? drawForm() : drawText());
    check(next === "form" && edited ? { values } : { text });
  };

  // What was typed last is judged before it is shown in the other way; a text that cannot be read has no form.
  const turn = async (next) => {
    if (next === view) return;
    clearTimeout(timer);
    if (view === "text" && !(await check({ text }))) return;
    if (view === "form" && edited) await check({ values });
    show(next);
  };

  const drawForm = () => {
    const all = ordered(top, schema);
    const first = FIRST.filter((name) => all.includes(name));
    const changed = () => { edited = true; later(() => ({ values })); };
    const of = (names) => el("div", { class: "fields" }, fields(top, schema, values, changed, "f", names));
    const rest = all.filter((name) => !first.includes(name));
    return [of(first), el("details", { class: "more", open: rest.some((name) => name in values) }, el("summary", {}, "All other settings"), of(rest))];
  };

  const drawText = () => {
    const area = el("textarea", { id: "text", rows: "26", spellcheck: "false", "aria-label": "The job file", "aria-describedby": "fault", oninput: () => { text = area.value; edited = false; later(() => ({ text })); } });
    area.value = text;
    return el("div", { class: "field" }, area);
  };

  const later = (what) => {
    clearTimeout(timer);
    // An answer about what was there before says nothing any more.
    asked += 1;
    typed = true;
    button.disabled = true;
    timer = setTimeout(() => check(what()), PAUSE);
  };

  async function check(what) {
    const own = ++asked;
    button.disabled = true;
    try {
      const judged = await act("/api/start/check", { ...what, ...from });
      if (own !== asked || over) return;
      text = judged.text || text;
      if (typed) sessionStorage.setItem(slot, text);
      // The fields of a form that is shown change the values that they were drawn with.
      if (view === "text" && what.text !== undefined && judged.values) values = judged.values;
      mark(judged.fault);
      button.disabled = judged.fault !== null;
      return what.text === undefined || Boolean(judged.values);
    } catch (error) {
      if (own === asked && !over) fill(verdict, el("p", { class: "why" }, error.message));
    }
  }

  // Says what is wrong, and shows it where it is.
  function mark(fault) {
    for (const one of body.querySelectorAll("[aria-invalid]")) one.removeAttribute("aria-invalid");
    if (!fault) {
      fill(verdict, el("p", { class: "fine" }, "✓ It can be started."));
      return;
    }
    const place = [view === "text" && fault.line && `line ${fault.line}`, fault.section && `[${fault.section}]`, fault.key && `key ${fault.key}`].filter(Boolean).join(", ");
    const path = ["f", fault.section, fault.key].filter(Boolean).join(".");
    const where = view === "text" ? body.querySelector("#text") : document.getElementById(path) || body.querySelector(`[data-of="${CSS.escape(path)}"] input`);
    where?.setAttribute("aria-invalid", "true");
    fill(verdict, el("p", { class: "why" }, place && el("b", {}, `${place}: `), prose(fault.reason)),
      where && (view !== "text" || fault.line) && el("button", { type: "button", class: "small", onclick: () => reveal(where, fault.line) }, "Go there"));
  }

  function reveal(where, line) {
    where.closest("details:not([open])")?.setAttribute("open", "");
    where.focus();
    if (view !== "text") return;
    const lines = where.value.split("\n");
    const begin = lines.slice(0, line - 1).reduce((sum, one) => sum + one.length + 1, 0);
    where.setSelectionRange(begin, begin + (lines[line - 1] || "").length);
    where.scrollTop = (line - 4) * parseFloat(getComputedStyle(where).lineHeight);
  }

  button.addEventListener("click", async () => {
    button.disabled = true;
    try {
      const made = await act("/api/start", { text, ...from });
      sessionStorage.removeItem(slot);
      say(`${made.key} is started.`);
      go(`/run?${new URLSearchParams({ key: made.key })}`);
    } catch (error) {
      say(error.message, true);
      button.disabled = false;
    }
  });

  // The form of a file needs its values first.
  if (view === "form") {
    try {
      const judged = await act("/api/start/check", { text, ...from });
      // The template of a new job is for readers of a file; a form begins empty.
      if (file || key || draft !== null) values = judged.values || {};
      if (!judged.values) view = "text";
    } catch (error) {
      say(error.message, true);
    }
  }
  show(view);
  return () => { over = true; clearTimeout(timer); };
}
