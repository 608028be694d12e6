// Elements, numbers and times. Text from outside goes in as text nodes only.

// An element with attributes, handlers (`onclick`) and children: nodes, texts, lists of them; null and false are left out.
export function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "class") made.className = value;
    else if (value === true) made.setAttribute(name, "");
    else made.setAttribute(name, value);
  }
  add(made, children);
  return made;
}

function add(to, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    to.append(child instanceof Node ? child : String(child));
  }
}

// What has the focus keeps it, where the same element is at the same place again.
export function fill(holder, ...children) {
  const fresh = document.createDocumentFragment();
  add(fresh, children);
  const active = document.activeElement;
  const path = [];
  for (let node = active; holder.contains(node) && node !== holder; node = node.parentElement) {
    path.unshift([...node.parentElement.children].indexOf(node));
  }
  holder.replaceChildren(fresh);
  if (!path.length) return;
  const same = path.reduce((node, at) => node?.children[at], holder);
  if (same?.tagName === active.tagName) same.focus({ preventScroll: true });
}

// What is pressed at the moment, until its click has come.
let pressed = null;
addEventListener("pointerdown", (event) => { pressed = event.target; }, true);
for (const end of ["pointerup", "pointercancel"]) addEventListener(end, () => setTimeout(() => { pressed = null; }), true);

// Draws anew what has changed by itself: not while somebody presses a button or a link there, or has selected text there, which would be
// lost, but afterwards.
const waiting = new WeakMap();
export function calmly(holder, draw) {
  clearTimeout(waiting.get(holder));
  const selection = getSelection();
  const isBusy = holder.contains(pressed) || (!selection.isCollapsed && holder.contains(selection.anchorNode));
  if (isBusy) waiting.set(holder, setTimeout(() => calmly(holder, draw), 300));
  else draw();
}

// A link within the studio.
export const to = (path, query, ...children) => el("a", { href: address(path, query) }, ...children);

export function address(path, query = {}) {
  const members = Object.entries(query).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  const text = new URLSearchParams(members).toString();
  return text ? `${path}?${text}` : path;
}

// Several keys in one member of an address: a key has one slash, and no two beside each other.
export const together = (all) => all.join("//");
export const keys = (text) => (text || "").split("//").filter(Boolean);

export const card = (heading, ...children) => el("section", {}, heading && el("h2", {}, heading), ...children);

// A table; columns are [heading, "word" or "number"].
export function table(columns, rows, label) {
  const head = columns.map(([heading, kind]) => el("th", { scope: "col", class: kind === "word" ? "word" : null }, heading));
  const body = rows.map((cells) => el("tr", {}, cells.map((cell, column) => {
    const [heading, kind] = columns[column];
    return el("td", { class: kind === "word" ? "word" : null, "data-is": heading || null }, cell);
  })));
  // Three columns have room on a telephone; more become lists there.
  return el("div", { class: columns.length > 3 ? "scroll" : "scroll few", tabindex: "0", role: "region", "aria-label": label || "Table" },
    el("table", {}, el("thead", {}, el("tr", {}, head)), el("tbody", {}, body)));
}

// About four digits.
export function digits(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e7)) return value.toExponential(2).replace("e+", "e");
  if (size >= 1000) return Math.round(value).toLocaleString("en").replaceAll(",", " ");
  return String(+value.toPrecision(4));
}

export const percent = (value) => (value === null || value === undefined ? "–" : `${Math.round(value)} %`);

export function duration(seconds) {
  if (seconds === null || seconds === undefined || !(seconds >= 0) || seconds === Infinity) return "–";
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 600) return `${Math.round(seconds)} s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 120) return `${minutes} min`;
  if (minutes < 60 * 48) return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
  return `${Math.floor(minutes / 1440)} d ${Math.round((minutes % 1440) / 60)} h`;
}

export function moment(unix) {
  if (unix === null || unix === undefined) return "–";
  const date = new Date(unix * 1000);
  if (!Number.isFinite(date.getTime())) return "–";
  const two = (number) => String(number).padStart(2, "0");
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${two(date.getHours())}:${two(date.getMinutes())}`;
}

export function clock(unix) {
  const date = new Date(unix * 1000);
  return Number.isFinite(date.getTime()) ? date.toTimeString().slice(0, 8) : "";
}

export function ago(unix) {
  if (unix === null || unix === undefined) return "–";
  const seconds = Date.now() / 1000 - unix;
  if (seconds < 0) return moment(unix);
  return seconds < 86400 * 2 ? `${duration(seconds)} ago` : moment(unix);
}

export function bytes(count) {
  if (count < 1000) return `${count} B`;
  const power = Math.min(4, Math.floor(Math.log10(count) / 3));
  return `${+(count / 1000 ** power).toPrecision(3)} ${["B", "kB", "MB", "GB", "TB"][power]}`;
}

// A state is a word and a shape, so that nobody needs its colour.
const SHAPES = { running: "▶", finished: "✓", failed: "✕", "cut off": "✕", unreadable: "?", stopped: "■", interrupted: "■" };
export const state = (word) =>
  el("span", { class: `state ${word.replace(" ", "-")}` }, el("span", { "aria-hidden": "true" }, SHAPES[word] || "·"), ` ${word}`);

export function bar(share, label) {
  const inner = el("span", {});
  inner.style.width = `${Math.max(0, Math.min(100, 100 * share))}%`;
  return el("span", { class: "meter", role: "img", "aria-label": label }, inner);
}

export function save(name, blob) {
  const link = el("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

// The state of the page in its address.
export const query = () => Object.fromEntries(new URLSearchParams(location.search));
export function remember(changes) {
  const now = { ...query(), ...changes };
  history.replaceState(history.state, "", address(location.pathname, now));
}
