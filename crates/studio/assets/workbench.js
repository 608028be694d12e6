// The workbench: a pipeline tried on one photo, per-op and fused side by side.

import { digits, el, fill, query, remember, table, to } from "./dom.js";
import { act, ask } from "./net.js";
import { fields, ordered, prose, resolved } from "./form.js";
import { noFolder, picture } from "./data.js";
import { say } from "./app.js";

const PAUSE = 400;

export default async function workbench(main) {
  document.title = "Workbench · Stokehold studio";
  const { key, part = "train", sample = "0" } = query();
  const { schema, presets } = await ask("/api/workbench");
  if (!key) {
    const { places } = await ask("/api/data");
    fill(main, el("h1", {}, "Workbench"), places.length
      ? el("p", { class: "note" }, "Choose a photo in ", to("/data", {}, "the data"), ": each picture there leads here.") : noFolder());
    return null;
  }
  const kinds = Object.fromEntries(schema.oneOf.map((one) => {
    const whole = resolved(one, schema);
    const { type, ...properties } = whole.properties;
    const required = [...(whole.required || []), ...(one.$ref ? resolved({ $ref: one.$ref }, schema).required || [] : [])].filter((name) => name !== "type");
    return [type.const, { ...whole, properties, required: [...new Set(required)] }];
  }));
  // The state is in the address: what is done there, and how it is drawn.
  const kept = query();
  let ops = parse(kept.op) || copy(presets["imagenet-train"]);
  const draw = { seed: kept.seed === undefined ? 1 : Number(kept.seed) || 0, epoch: Number(kept.epoch) || 0, draws: Number(kept.draws) || 4, exif: kept.exif === "true" };
  let timer = 0, asked = 0, over = false, made = null;

  const list = el("ol", { class: "ops" });
  const results = el("div", { id: "results" });
  const problem = el("p", { class: "why", role: "status", id: "problem" });
  const changed = () => {
    remember({ op: JSON.stringify(ops), ...draw, exif: draw.exif || "" });
    clearTimeout(timer);
    timer = setTimeout(run, PAUSE);
  };
  const number = (label, name, most) => el("span", { class: "number" }, el("label", { for: `d-${name}` }, label), el("input", { id: `d-${name}`, type: "number", min: name === "draws" ? "1" : "0", max: most, value: draw[name],
    oninput: (event) => { draw[name] = Math.max(0, Math.trunc(Number(event.target.value)) || 0); changed(); } }));
  const preset = el("select", { "aria-label": "Preset", id: "preset", onchange: (event) => { if (event.target.value) { ops = copy(presets[event.target.value]); drawOps(); changed(); } } },
    el("option", { value: "" }, "a preset .."), Object.keys(presets).map((name) => el("option", { value: name }, name)));
  const add = el("select", { "aria-label": "Add an operation", id: "add", onchange: (event) => {
    const type = event.target.value;
    event.target.value = "";
    if (!type) return;
    // Before the floats, where most belong.
    const floats = ["RandomErasing", "GaussianNoise", "Normalize", "ToFloat"].includes(type);
    const at = floats ? ops.length : Math.max(0, ops.findIndex((op) => op.type === "ToFloat"));
    ops.splice(ops.some((op) => op.type === "ToFloat") ? at : ops.length, 0, { type });
    drawOps();
    changed();
  } }, el("option", { value: "" }, "add an operation .."), Object.entries(kinds).map(([name, kind]) => el("option", { value: name, title: kind.description }, name)));

  function drawOps() {
    const move = (from, by) => {
      const [one] = ops.splice(from, 1);
      ops.splice(from + by, 0, one);
      drawOps();
      changed();
    };
    fill(list, ops.map((op, at) => {
      const kind = kinds[op.type];
      const names = kind ? ordered(kind, schema).filter((name) => name in kind.properties) : [];
      const button = (word, label, can, what) => el("button", { type: "button", class: "small", "aria-label": `${label} ${op.type}`, disabled: !can, onclick: what }, word);
      const words = el("span", { class: "soft" });
      const told = () => {
        words.textContent = Object.entries(op).filter(([name]) => name !== "type").map(([name, value]) => `${name}=${JSON.stringify(value)}`).join(", ");
      };
      told();
      return el("li", {}, el("details", { open: names.some((name) => kind.required.includes(name) && !(name in op)) },
        el("summary", {}, el("b", {}, op.type), " ", words),
        kind?.description && el("p", { class: "about" }, prose(kind.description)),
        el("div", { class: "fields" }, kind ? fields(kind, schema, op, () => { told(); changed(); }, `op${at}`, names) : null)),
      el("span", { class: "moves" }, button("↑", "Earlier:", at > 0, () => move(at, -1)), button("↓", "Later:", at + 1 < ops.length, () => move(at, 1)),
        button("Remove", "Remove", true, () => { ops.splice(at, 1); drawOps(); changed(); })));
    }));
  }

  async function run() {
    const own = ++asked;
    results.setAttribute("aria-busy", "true");
    try {
      const answer = await act("/api/workbench/draw", { key, part, sample: Number(sample), op: ops, ...draw, draws: Math.max(1, draw.draws) });
      if (own !== asked || over) return;
      problem.textContent = answer.problem || "";
      made = answer;
      if (answer.draws) drawResults(answer);
      else fill(results);
    } catch (error) {
      if (own === asked && !over) { problem.textContent = error.message; fill(results); made = null; }
    }
    if (own === asked) results.removeAttribute("aria-busy");
  }

  function drawResults(answer) {
    const all = answer.draws;
    const mean = (of) => all.reduce((sum, one) => sum + of(one), 0) / all.length;
    const time = (value) => `${value.toFixed(2)} ms`;
    const rows = [["per-op", "per_op_ms"], ["fused", "fused_ms"]].map(([word, name]) => [word, time(mean((one) => one[name][0])), time(mean((one) => one[name][1])), time(mean((one) => one[name][0] + one[name][1]))]);
    const whole = (name) => mean((one) => one[name][0] + one[name][1]);
    const shown = (one, name, word) => el("figure", {}, el("img", { src: `data:image/png;base64,${one[name]}`, alt: `${word}, epoch ${one.epoch}`, width: answer.size[0], height: answer.size[1] }), el("figcaption", {}, word));
    fill(results,
      el("h2", {}, "Time of each stage"),
      table([["Executor", "word"], ["Decode"], ["Augment"], ["Together"]], rows, "Time of each stage"),
      el("p", { class: "note" }, `Mean of ${all.length} draws on one thread of the studio's machine, which may do other things; fused takes ${digits(whole("fused_ms") / whole("per_op_ms"))} of per-op's time.`),
      all.length < answer.wanted && el("p", { class: "note" }, `It stopped after ${all.length} of ${answer.wanted} draws, because they take long.`),
      el("h2", {}, "Draws"),
      el("p", { class: "note" }, `${answer.size[0]} x ${answer.size[1]} pixels. Differences are in levels of 0 to 255, before Normalize; their pictures are 16 times as bright.`),
      el("ul", { class: "draws" }, all.map((one) => el("li", {},
        el("h3", {}, `Epoch ${one.epoch}`), el("p", { class: "note" }, `difference: at most ${digits(one.max)}, mean ${digits(one.mean)}`),
        el("div", { class: "trio" }, shown(one, "per_op", "per-op"), shown(one, "fused", "fused"), shown(one, "difference", "difference")),
        el("details", {}, el("summary", {}, `${one.steps.length} steps`), el("pre", { tabindex: "0" }, one.plan))))));
  }

  const copyAs = (word, name) => el("button", { type: "button", id: `copy-${name}`, onclick: async () => {
    const text = made?.[name];
    if (!text) { say("The operations cannot be read yet.", true); return; }
    output.value = text;
    output.hidden = false;
    try {
      await navigator.clipboard.writeText(text);
      say(`${word} is copied.`);
    } catch {
      output.focus();
      output.select();
      say(`Copy the ${word} from the field.`);
    }
  } }, `Copy as ${word}`);
  const output = el("textarea", { id: "copied", rows: "12", readonly: true, hidden: true, "aria-label": "The pipeline as text", spellcheck: "false" });

  drawOps();
  fill(main, el("h1", {}, "Workbench"),
    el("p", { class: "note" }, "Sample ", sample, " of ", to("/data", { key, part }, `${key}, ${part === "val" ? "validation" : "training"}`), ". Each draw is an epoch; it is the one that training with this seed has."),
    el("div", { class: "bench" },
      el("section", {}, el("h2", {}, "Operations"), el("div", { class: "bar-of" }, preset, add), list, problem,
        el("div", { class: "bar-of" }, number("draws", "draws", "12"), number("seed", "seed"), number("first epoch", "epoch"),
          el("span", {}, el("input", { type: "checkbox", id: "exif", checked: draw.exif, onchange: (event) => { draw.exif = event.target.checked; changed(); } }), " ", el("label", { for: "exif" }, "turn upright by EXIF"))),
        el("div", { class: "buttons" }, copyAs("TOML", "toml"), copyAs("Python", "python")), output,
        el("h2", {}, "The photo"), picture({ key, part, sample }, `sample ${sample}`, true)),
      el("section", {}, results)));
  run();
  return () => { over = true; clearTimeout(timer); };
}

const copy = (value) => JSON.parse(JSON.stringify(value));
function parse(text) {
  try {
    const value = JSON.parse(text);
    return Array.isArray(value) && value.every((op) => op && typeof op.type === "string") ? value : null;
  } catch {
    return null;
  }
}
