// Which page is shown, and the keys.

import { el, fill } from "./dom.js";
import { ask } from "./net.js";
import home from "./home.js";
import runs from "./runs.js";
import run from "./run.js";
import compare from "./compare.js";
import studies from "./studies.js";
import study from "./study.js";
import start from "./start.js";
import data from "./data.js";
import workbench from "./workbench.js";
import results from "./results.js";
import machine from "./machine.js";

const PAGES = { "/": home, "/runs": runs, "/run": run, "/compare": compare, "/studies": studies, "/study": study, "/start": start, "/data": data, "/workbench": workbench, "/results": results, "/machine": machine };
const UNDER = { "/run": "/runs", "/compare": "/runs", "/study": "/studies", "/workbench": "/data" };
const main = document.getElementById("main");
let leave = null, visit = 0;

// The token of the link has become a cookie; it should not stay in the address.
if (new URLSearchParams(location.search).has("token")) {
  const query = new URLSearchParams(location.search);
  query.delete("token");
  const rest = query.toString();
  history.replaceState(null, "", location.pathname + (rest ? `?${rest}` : ""));
}

const session = ask("/api/session").catch((error) => ({ trouble: error.message, places: [] }));

// What cannot be done here is not offered.
session.then((known) => {
  if (!known.can_start) document.querySelector('nav.top [data-page="/start"]').hidden = true;
});

async function show(moved) {
  const own = ++visit;
  leave?.();
  leave = null;
  const page = PAGES[location.pathname];
  for (const link of document.querySelectorAll("nav.top a")) {
    const current = link.dataset.page === (UNDER[location.pathname] || location.pathname);
    if (current) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  // A holder of its own: a page that answers when the next one is there already fills nothing that is seen.
  const holder = el("div", {});
  fill(main, holder);
  if (!page) {
    fill(main, el("h1", {}, "There is no such page"));
    return;
  }
  try {
    const ended = await page(holder, await session);
    if (own === visit) leave = ended || null;
    else ended?.();
  } catch (error) {
    if (own === visit) fill(main, el("h1", {}, "This cannot be shown"), el("p", { class: "trouble", role: "alert" }, error.message));
  }
  if (moved && own === visit) {
    main.focus({ preventScroll: true });
    scrollTo(0, 0);
  }
}

export function go(path) {
  history.pushState(null, "", path);
  show(true);
}

document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[href^='/']");
  if (!link || event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || link.target) return;
  event.preventDefault();
  go(link.getAttribute("href"));
});
addEventListener("popstate", () => show(true));

// Keys: a letter after `g` goes to a page, as in other programs.
const KEYS = [["g h", "Home"], ["g r", "Runs and jobs"], ["g s", "Studies"], ["g d", "Data"], ["g m", "This machine"], ["g n", "Start a new job"], ["/", "To the search or filter"],
  ["j k", "The row below, the row above"], ["Enter", "Open the row"], ["x", "Choose the row, to compare it"], ["?", "These keys"], ["Esc", "Close"]];
const dialog = document.getElementById("keys");
fill(dialog, el("h2", { id: "keys-title" }, "Keys"),
  el("dl", {}, KEYS.map(([key, what]) => [el("dt", {}, el("kbd", {}, key)), el("dd", {}, what)])),
  el("button", { type: "button", onclick: () => dialog.close() }, "Close"));
let prefix = false;
document.addEventListener("keydown", (event) => {
  if (event.metaKey || event.ctrlKey || event.altKey || event.target.closest?.("input:not([type=checkbox]), select, textarea, dialog")) return;
  const places = { h: "/", r: "/runs", s: "/studies", d: "/data", m: "/machine", n: "/start" };
  if (prefix && places[event.key]) {
    event.preventDefault();
    go(places[event.key]);
  } else if (event.key === "?") dialog.showModal();
  else if (event.key === "/") {
    const field = main.querySelector("input[type=search]");
    if (field) {
      event.preventDefault();
      field.focus();
    }
  }
  prefix = event.key === "g";
});

// A sentence that passes.
let timer = 0;
export function say(text, isTrouble) {
  const says = document.getElementById("says");
  says.textContent = text;
  says.className = isTrouble ? "says shown bad" : "says shown";
  clearTimeout(timer);
  timer = setTimeout(() => { says.className = "says"; }, 6000);
}

show(false);
