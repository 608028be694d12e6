// Folders of images: classes, samples, and which files are broken.

import { bytes, card, el, fill, query, remember, table, to } from "./dom.js";
import { act, ask } from "./net.js";
import { say } from "./app.js";

const COUNT = 60;
// Between two looks at an examination.
const LOOK = 700;

export const noFolder = () => el("p", { class: "note" }, "This studio has no folder of images. Begin it with ", el("code", {}, "stokehold studio --data DIR"), ".");

// A picture of a sample, or why there is none. `name` is empty where the name stands beside it.
export function picture(asked, name, large) {
  const holder = el("span", { class: large ? "thumb large" : "thumb" });
  const address = `/api/data/picture?${new URLSearchParams({ ...asked, ...(large ? { large: true } : {}) })}`;
  fetch(address).then(async (response) => {
    if (response.ok && response.headers.get("content-type") === "image/jpeg") {
      const made = URL.createObjectURL(await response.blob());
      const free = () => URL.revokeObjectURL(made);
      fill(holder, el("img", { src: made, alt: name, onload: free, onerror: free }));
      return;
    }
    const said = await response.json().catch(() => ({}));
    fill(holder, el("span", { class: "why" }, said.broken || said.error || "It cannot be shown."));
  }).catch(() => fill(holder, el("span", { class: "why" }, "The connection is lost.")));
  return holder;
}

export default async function data(main) {
  document.title = "Data · Stokehold studio";
  const { key = "" } = query();
  const about = await ask("/api/data", key ? { key } : {});
  if (!key && about.places.length === 1) {
    history.replaceState(null, "", `/data?${new URLSearchParams({ key: about.places[0].key })}`);
    return data(main);
  }
  const parts = key.split("/");
  const trail = parts.map((part, at) => {
    const own = parts.slice(0, at + 1).join("/");
    return [at > 0 && " / ", at + 1 < parts.length ? to("/data", { key: own }, part) : el("span", { "aria-current": "page" }, part)];
  });
  const others = about.places.filter((place) => key !== place.key && !key.startsWith(`${place.key}/`));
  fill(main, el("h1", {}, key ? parts.at(-1) : "Data"),
    key ? el("p", { class: "note" }, trail, "  ", el("code", {}, about.path)) : about.places.length ? null : noFolder(),
    others.length > 0 && el("section", {}, el("h2", {}, key ? "Other folders" : "Folders"), el("ul", { class: "rows" },
      others.map((place) => el("li", {}, to("/data", { key: place.key }, place.key), " ", el("code", {}, place.path))))));
  if (!key) return null;
  if (!about.set) {
    main.append(el("section", {}, el("p", { class: about.folders.length ? "note" : "trouble" }, `It is no data set itself: ${about.problem}`),
      about.folders.length > 0 && [el("h2", {}, "Folders in it"), el("ul", { class: "rows" }, about.folders.map((name) => el("li", {}, to("/data", { key: `${key}/${name}` }, name))))]));
    return null;
  }
  return dataset(main, key, about);
}

function dataset(main, key, about) {
  const { set } = about;
  let over = false, timer = 0, report = null;
  const facts = el("dl", { class: "figures" }, [["training images", set.train], ["validation images", set.val ?? "none"],
    set.pixels ? ["classes of pixels", set.pixels.length] : ["classes", set.class_count], ["kept as", set.kind]]
    .map(([word, value]) => el("div", { class: "figure" }, el("dt", {}, word), el("dd", {}, value))));
  const examined = el("section", { id: "examined" });
  const classes = el("section", {});
  const grid = el("section", { id: "samples" });
  const remarks = set.remarks.length > 0 && el("section", { id: "remarks" }, el("h2", {}, "Worth knowing"),
    el("ul", {}, set.remarks.map((remark) => el("li", { class: "break" }, remark))));
  main.append(...[facts, remarks, examined, grid, classes].filter(Boolean));

  // Broken files.
  const drawExamined = (now) => {
    const running = now?.running;
    report = now?.report || report;
    fill(examined, el("div", { class: "titled" }, el("h2", {}, "Broken files"),
      about.can_examine && el("button", { type: "button", id: "examine", onclick: () => examine(running) }, running ? "Stop" : now ? "Examine again" : "Examine every file")),
    !now && el("p", { class: "note" }, "Nobody has looked yet. An examination reads and decodes every file, as ", el("code", {}, "stokehold dataset info"), " does, on half of the cores."),
    running && el("p", { role: "status" }, `${now.done} of ${now.of} files`),
    now && !running && !now.report && el("p", { class: "note" }, "It was stopped before its end."),
    now?.report && !running && drawReport(now.report));
    drawClasses();
  };
  const drawReport = (all) => {
    const size = (one) => (one ? one.join(" x ") : "–");
    const spread = (one, form) => (one ? [form(one.min), form(one.median), form(one.max)] : ["–", "–", "–"]);
    return [
      el("p", { role: "status", id: "verdict" }, all.broken_count ? `${all.broken_count} of ${all.images} files are broken.` : `None of ${all.images} files is broken.`),
      all.broken.length > 0 && table([["File", "word"], ["Class", "word"], ["Part", "word"], ["Why", "word"]], all.broken.map((one) => [
        el("span", { class: "break" }, one.path), one.class || "–", one.part, el("span", { class: "why" }, one.reason)]), "Broken files"),
      all.broken_count > all.broken.length && el("p", { class: "note" }, `The first ${all.broken.length} are shown.`),
      table([["Of the others", "word"], ["Smallest"], ["Median"], ["Largest"]], [
        ["size, pixels", ...spread(all.size, size)], ["file", ...spread(all.file_bytes, bytes)]], "Sizes"),
      el("p", { class: "note" }, [
        Object.entries(all.formats).map(([name, count]) => `${count} ${name}`).join(", "), Object.entries(all.colors).map(([name, count]) => `${count} ${name}`).join(", "),
        all.misnamed > 0 && `${all.misnamed} with another extension than their content's`, all.exif_rotated > 0 && `${all.exif_rotated} turned by EXIF`].filter(Boolean).join(" · "))];
  };
  const look = async () => {
    clearTimeout(timer);
    try {
      const now = await ask("/api/data/examine", { key });
      if (over) return;
      drawExamined(now);
      if (now?.running) timer = setTimeout(look, LOOK);
    } catch {
      if (!over) timer = setTimeout(look, 5 * LOOK);
    }
  };
  const examine = async (running) => {
    try {
      await act(running ? "/api/data/examine/stop" : "/api/data/examine", { key });
      look();
    } catch (error) {
      say(error.message, true);
    }
  };

  // Classes with counts.
  const drawClasses = () => {
    const [wordOf, rows] = set.pixels
      ? ["Classes of pixels", report?.pixels ? report.pixels.classes.map((one) => [one.name, `${(100 * one.share).toFixed(2)} %`, one.images]) : set.pixels.map((name) => [name, "–", "–"])]
      : ["Classes", set.classes.map(([name, train, val], at) => {
        const found = report?.classes?.[at];
        return [el("button", { type: "button", class: "plain", onclick: () => choose({ class: String(at), from: "" }) }, name), train, val ?? "–", ...(found ? [bytes(found.bytes), found.broken] : [])];
      })];
    const columns = set.pixels ? [["Class", "word"], ["Share of pixels"], ["Images"]] : [["Class", "word"], ["Training"], ["Validation"], ...(report?.classes ? [["Bytes"], ["Broken"]] : [])];
    fill(classes, el("h2", {}, wordOf), table(columns, rows, wordOf),
      !set.pixels && set.class_count > set.classes.length && el("p", { class: "note" }, `The first ${set.classes.length} of ${set.class_count} are shown.`));
  };

  // Samples in a grid.
  const choose = (changes) => {
    remember(changes);
    drawSamples();
    grid.scrollIntoView({ block: "nearest" });
  };
  let asked = 0;
  async function drawSamples() {
    const own = ++asked;
    const { part = "train", class: only = "", from = "0" } = query();
    const first = Math.max(0, Number(from) || 0);
    let page;
    try {
      page = await ask("/api/data/samples", { key, part, from: first, count: COUNT, ...(only === "" ? {} : { class: only }) });
    } catch (error) {
      if (own === asked && !over) fill(grid, el("h2", {}, "Samples"), el("p", { class: "why" }, error.message));
      return;
    }
    if (own !== asked || over) return;
    const select = (label, name, options, now) => el("select", { "aria-label": label, id: name, onchange: (event) => choose({ [name]: event.target.value, from: "" }) },
      options.map(([value, word]) => el("option", { value, selected: value === now }, word)));
    const last = Math.min(page.total, first + page.rows.length);
    const turn = (word, at, can) => el("button", { type: "button", class: "small", disabled: !can, onclick: () => choose({ from: at || "" }) }, word);
    fill(grid, el("div", { class: "titled" }, el("h2", {}, "Samples"), el("span", { class: "tools bar-of" },
      set.val !== null && select("Part", "part", [["train", "training"], ["val", "validation"]], part),
      !set.pixels && set.class_count > 1 && select("Class", "class", [["", "all classes"], ...set.classes.map(([name], at) => [String(at), name])], only))),
    el("ul", { class: "samples" }, page.rows.map((row) => el("li", {},
      el("a", { href: `/workbench?${new URLSearchParams({ key, part, sample: row.sample })}`, title: `${row.name}: to the workbench` },
        picture({ key, part, sample: row.sample, version: row.version }, ""), el("span", { class: "name" }, row.name))))),
    page.total === 0 && el("p", { class: "note" }, "There are none."),
    el("p", { class: "turn" }, turn("Before", Math.max(0, first - COUNT), first > 0), el("span", { id: "range" }, page.total ? `${first + 1} to ${last} of ${page.total}` : ""), turn("After", first + COUNT, last < page.total)));
  }
  drawExamined(about.examined);
  if (about.examined?.running) timer = setTimeout(look, LOOK);
  drawSamples();
  return () => { over = true; clearTimeout(timer); };
}
