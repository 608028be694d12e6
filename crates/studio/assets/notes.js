// Tags and a note, of a run, a job or a study.

import { card, el, fill } from "./dom.js";
import { act } from "./net.js";
import { say } from "./app.js";

export const tags = (all) => all.length > 0 && el("ul", { class: "tags", "aria-label": "Tags" }, all.map((tag) => el("li", {}, tag)));

// A card with them; with a form where they may be changed.
export function notes(key, now, can) {
  const holder = el("div", {});
  const show = () => fill(holder,
    tags(now.tags),
    now.note ? el("p", { class: "note-of" }, now.note) : now.tags.length === 0 && el("p", { class: "note" }, can ? "None yet." : "None."),
    can && el("p", { class: "buttons" }, el("button", { type: "button", class: "small", id: "edit-notes", onclick: edit }, "Change tags and note")));
  const edit = () => {
    const words = el("input", { type: "text", value: now.tags.join(", "), id: "tags", autocomplete: "off" });
    const text = el("textarea", { id: "note", rows: "5" }, now.note);
    const save = async (event) => {
      event.preventDefault();
      const wanted = { tags: words.value.split(",").map((tag) => tag.trim()).filter(Boolean), note: text.value };
      try {
        now = (await act("/api/notes", { key, was: now, ...wanted })).notes;
        show();
        holder.querySelector("#edit-notes")?.focus();
        say("Tags and note are kept.");
      } catch (error) {
        say(error.message, true);
      }
    };
    fill(holder, el("form", { class: "fields", onsubmit: save },
      el("label", { for: "tags" }, "Tags, with commas between them"), words,
      el("label", { for: "note" }, "Note"), text,
      el("p", { class: "buttons" }, el("button", { type: "submit" }, "Keep"), el("button", { type: "button", onclick: () => { show(); holder.querySelector("#edit-notes")?.focus(); } }, "Leave as it was"))));
    words.focus();
  };
  show();
  return card("Tags and note", holder);
}
