// All studies.

import { ago, el, fill, state, table, to } from "./dom.js";
import { ask, follow } from "./net.js";
import { troubles } from "./home.js";

export default async function studies(main) {
  document.title = "Studies · Stokehold studio";
  const place = el("div", {});
  fill(main, el("h1", {}, "Studies"), place);
  const load = async () => {
    const page = await ask("/api/runs", { kind: "study", count: 500 });
    const word = (text) => [text, "word"];
    fill(place, troubles(page.troubles), page.rows.length
      ? el("section", {}, table([word("Study"), word("What"), word("State"), word("Began"), ["Trials"], word("Result")], page.rows.map((row) => [
        [to("/study", { key: row.key }, row.name), row.why && el("div", { class: "why" }, row.why)], row.what, state(row.state), ago(row.began),
        row.progress ? `${row.progress[0]} of ${row.progress[1]}` : "–", row.result || "–"]), "Studies"))
      : el("p", { class: "note" }, page.reading ? "Reading the folders .." : "No study is in the folders. `stokehold tune run` makes one."));
  };
  await load();
  return follow({ view: "list" }, { changed: () => load().catch(() => {}) });
}
