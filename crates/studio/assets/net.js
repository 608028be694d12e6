// Requests, and the one event stream of a page.

export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

async function answered(response) {
  const body = await response.text();
  let value = null;
  try { value = JSON.parse(body); } catch { /* plain text */ }
  if (!response.ok) throw new Refused(response.status, value?.error || body.trim() || response.statusText);
  return value;
}

export async function ask(path, query, signal) {
  const text = new URLSearchParams(query || {}).toString();
  return answered(await fetch(text ? `${path}?${text}` : path, { signal, headers: { accept: "application/json" } }));
}

export async function act(path, body) {
  const headers = { "content-type": "application/json" };
  return answered(await fetch(path, { method: "POST", headers, body: JSON.stringify(body) }));
}

export const GONE = "Its folder is gone. What is shown was read before.";

// Loads once at a time; who wants it meanwhile has it done once more at the end.
export function oneAtATime(load) {
  let asking = false, again = false;
  return async function run() {
    if (asking) { again = true; return; }
    asking = true;
    try {
      await load();
    } finally {
      asking = false;
      if (again) { again = false; run().catch(() => {}); }
    }
  };
}

const status = document.getElementById("link");
export function connected(word) {
  const text = {
    live: "● live", lost: "○ the connection is lost; trying again", rest: "",
    stranger: "○ this studio does not know this browser: open the link that it has printed",
  }[word];
  if (status.textContent !== text) status.textContent = text;
  status.className = `link ${word === "stranger" ? "lost" : word}`;
}

// Follows a view. A hidden page closes its stream, because browsers have few connections to a host, and goes on where it was
// when it is seen again; so does one whose connection broke. Returns what ends it.
export function follow(query, handlers) {
  let source = null, last = "", timer = 0, pause = 500, over = false, stranger = false;
  const open = () => {
    if (over || document.hidden) return;
    clearTimeout(timer);
    source?.close();
    const own = new EventSource(`/api/events?${new URLSearchParams({ ...query, ...(last ? { at: last } : {}) })}`);
    source = own;
    own.onopen = () => { pause = 500; connected("live"); };
    own.onerror = () => {
      if (own !== source || over) return;
      own.close();
      // An event stream does not say why it failed. After a restart the studio has another token.
      if (!stranger) connected("lost");
      ask("/api/session").then(() => { stranger = false; }, (error) => {
        stranger = error.status === 401;
        if (stranger && !over) connected("stranger");
      });
      timer = setTimeout(open, pause);
      pause = Math.min(pause * 2, 8000);
    };
    for (const [name, handle] of Object.entries(handlers)) {
      own.addEventListener(name, (event) => {
        if (event.lastEventId) last = event.lastEventId;
        handle(JSON.parse(event.data));
      });
    }
  };
  const seen = () => {
    if (document.hidden) {
      source?.close();
      source = null;
      connected("rest");
    } else open();
  };
  document.addEventListener("visibilitychange", seen);
  open();
  return () => {
    over = true;
    clearTimeout(timer);
    source?.close();
    document.removeEventListener("visibilitychange", seen);
    connected("rest");
  };
}
