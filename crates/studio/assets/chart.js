// Curves. Everything that the studio draws over steps or time is drawn here: runs, trials, comparisons.

import { say } from "./app.js";
import { clock, digits, duration, el, fill, query, remember, save } from "./dom.js";

// Lines differ in colour and in dashes, so that nobody needs to see the colours.
const DASHES = [[], [7, 3], [2, 3], [9, 3, 2, 3], [1, 4], [5, 5]];
const COLOURS = 6;
// Each colour has all dashes before one comes again.
const dash = (number) => DASHES[(number + Math.floor(number / COLOURS)) % DASHES.length];
// A line is thinned to so many points when it has twice as many.
const POINTS = 4096;

function style(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

// Round numbers from low to high, about `count`.
function ticks(low, high, count) {
  const rough = (high - low || 1) / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((one) => one >= rough * 0.999);
  const all = [];
  // Counted, for a step may be too small to move a large number.
  const first = Math.ceil(low / step - 1e-9);
  for (let number = 0; number <= 3 * count; number += 1) {
    const tick = (first + number) * step;
    if (tick > high + step * 1e-9) break;
    all.push(Math.abs(tick) < step * 1e-9 ? 0 : tick);
  }
  return all;
}

// The marks of a logarithmic scale from low to high: powers of ten with 2 and 5 between them where there is room, and round numbers
// where there is less than a power.
function marksOfLog(low, high, count) {
  const powers = Math.log10(high) - Math.log10(low);
  if (powers < 1) return ticks(low, high, count).filter((tick) => tick > 0);
  const every = Math.max(1, Math.ceil(powers / count));
  const between = 3 * powers <= count ? [1, 2, 5] : [1];
  const all = [];
  for (let power = Math.floor(Math.log10(low) / every) * every; power <= Math.log10(high); power += every) {
    all.push(...between.map((factor) => factor * 10 ** power));
  }
  return all.filter((tick) => tick >= low && tick <= high);
}

// How far a mean reaches back: over so many parts of the picture's width.
const PARTS = 1000;

// An exponential mean of values at places xs, where `keep` (0 to 1) of it is left after a PARTS-th of the width. It counts distances
// and not points, because some stretches of a line are thinner than others; the first values are not drawn towards 0.
function smoothed(xs, values, width, keep) {
  let sum = 0, weight = 0, before = null;
  return values.map((value, at) => {
    const x = xs[at];
    if (value === null || x === null) return value;
    const left = before === null || !(width > 0) ? 0 : keep ** Math.max(0, ((x - before) / width) * PARTS);
    sum = sum * left + value;
    weight = weight * left + 1;
    before = x;
    return sum / weight;
  });
}

// The lowest and the highest of some points, each the first of equals, in their order; a point is [time, step, value].
function extremes(points) {
  let low = -1, high = -1;
  points.forEach(([, , value], at) => {
    if (value === null) return;
    if (low < 0 || value < points[low][2]) low = at;
    if (high < 0 || value > points[high][2]) high = at;
  });
  if (low < 0) [low, high] = [0, points.length - 1];
  return [points[Math.min(low, high)], points[Math.max(low, high)]];
}

// A line of points, bounded as the server's curves are, so that a page may stay open for days: of each stretch the lowest and the
// highest, and the first and the last one.
export class Line {
  constructor(name, points = []) {
    this.name = name;
    this.steps = [];
    this.times = [];
    this.values = [];
    this.stretch = 2;
    this.came = 0;
    this.open = [];
    this.settled = 0;
    this.push(points);
  }

  // Points as the server sends them: time, step, value, one after the other.
  push(flat) {
    if (flat.length < 3) return;
    this.keep(this.settled);
    for (let at = 0; at + 2 < flat.length; at += 3) {
      this.open.push([flat[at], flat[at + 1], flat[at + 2]]);
      this.came += 1;
      if (this.open.length > 2) this.open = extremes(this.open);
      if (this.came < this.stretch) continue;
      this.append(this.open);
      this.open = [];
      this.came = 0;
      if (this.values.length >= 2 * POINTS) this.thin();
    }
    this.settled = this.values.length;
    const last = flat.slice(-3);
    this.append(this.open);
    if (this.last !== last[2] || this.times.at(-1) !== last[0]) this.append([last]);
  }

  thin() {
    const all = this.values.map((value, at) => [this.times[at], this.steps[at], value]);
    this.keep(0);
    if (extremes(all.slice(0, 4))[0] !== all[0]) this.append([all[0]]);
    for (let at = 0; at < all.length; at += 4) this.append(extremes(all.slice(at, at + 4)));
    this.stretch *= 2;
  }

  keep(count) {
    for (const part of [this.times, this.steps, this.values]) part.length = count;
  }

  append(points) {
    for (const [time, step, value] of points) {
      this.times.push(time);
      this.steps.push(step);
      this.values.push(value);
    }
  }

  get last() {
    return this.values[this.values.length - 1];
  }
}

// A picture of lines. `options`: title, by ("step" or "time"), log (a logarithmic scale), smooth (0 to 1, for `smoothed`), unit (what steps count), words (how a value is
// written), within (the range of the values, if it is known), begin (of a line,
// the time from which its times are counted).
export class Chart {
  constructor(holder, options) {
    this.options = { words: digits, ...options };
    this.lines = [];
    this.hidden = new Set();
    this.pointer = null;
    this.asked = false;
    this.canvas = el("canvas", { tabindex: "0", role: "img" });
    this.legend = el("div", { class: "legend" });
    this.tip = el("div", { class: "tip", hidden: true });
    const button = (text, label, act) => el("button", { type: "button", class: "small", "aria-label": `${text}: ${label}, ${options.title}`, onclick: act }, text);
    const plot = el("div", { class: "plot" }, this.canvas, this.tip);
    this.id = `chart-${options.title.toLowerCase().replaceAll(/[^\p{L}\p{N}]+/gu, "-")}`;
    this.figure = el("figure", { class: "chart", id: this.id },
      el("figcaption", {}, el("h3", {}, options.title),
        el("span", { class: "tools" },
          button("PNG", "save as a picture", () => this.png()),
          button("CSV", "save as a table", () => this.csv()),
          button("Link", "copy a link to it", () => this.link()))),
      plot, this.legend);
    holder.append(this.figure);
    // Of a link to this picture.
    if (decodeURIComponent(location.hash) === `#${this.id}`) setTimeout(() => this.figure.scrollIntoView(), 300);
    this.canvas.addEventListener("pointermove", (event) => {
      const box = this.canvas.getBoundingClientRect();
      this.pointer = event.clientX - box.left;
      this.redraw();
    });
    this.canvas.addEventListener("pointerleave", () => { this.pointer = null; this.redraw(); });
    this.canvas.addEventListener("keydown", (event) => {
      const by = { ArrowLeft: -12, ArrowRight: 12 }[event.key];
      if (!by) return;
      event.preventDefault();
      this.pointer = Math.max(0, Math.min(this.canvas.clientWidth, (this.pointer ?? this.canvas.clientWidth / 2) + by));
      this.redraw();
    });
    this.canvas.addEventListener("blur", () => { this.pointer = null; this.redraw(); });
    this.observer = new ResizeObserver(() => this.redraw());
    this.observer.observe(this.figure);
    this.scheme = matchMedia("(prefers-color-scheme: dark)");
    this.again = () => this.redraw();
    this.scheme.addEventListener("change", this.again);
  }

  close() {
    this.observer.disconnect();
    this.scheme.removeEventListener("change", this.again);
  }

  set(lines) {
    this.lines = lines;
    this.listed = "";
    this.redraw();
  }

  change(options) {
    Object.assign(this.options, options);
    this.redraw();
  }

  // One picture a frame, however many events come.
  redraw() {
    if (this.asked) return;
    this.asked = true;
    requestAnimationFrame(() => {
      this.asked = false;
      if (this.figure.isConnected) this.draw();
    });
  }

  colour(number) {
    return style(`--c${number % COLOURS}`);
  }

  label() {
    const shown = this.lines.slice(0, 12).map((line) => `${line.name} ${this.options.words(line.last)}`);
    this.canvas.setAttribute("aria-label", `${this.options.title}. Last values: ${shown.join(", ")}`);
    const key = this.lines.map((line) => line.name).join("\n") + [...this.hidden].join("\n");
    if (this.listed !== key) {
      this.listed = key;
      const many = this.lines.length > 1;
      fill(this.legend, this.lines.length <= 24 && this.lines.map((line, number) => {
        const swatch = el("canvas", { class: "dash", width: "44", height: "12", "aria-hidden": "true" });
        const value = el("span", { class: "value" });
        line.shown = value;
        const item = many
          ? el("button", { type: "button", class: "key-of", "aria-pressed": String(!this.hidden.has(line.name)), onclick: () => {
            if (!this.hidden.delete(line.name)) this.hidden.add(line.name);
            this.redraw();
          } }, swatch, line.name, " ", value)
          : el("span", { class: "key-of" }, swatch, line.name, " ", value);
        line.swatch = swatch;
        line.number = number;
        return item;
      }));
    }
    this.lines.forEach((line, number) => {
      if (line.shown) line.shown.textContent = this.options.words(line.last);
      if (!line.swatch) return;
      const pen = line.swatch.getContext("2d");
      pen.clearRect(0, 0, 44, 12);
      this.stroke(pen, number);
      pen.lineWidth = 4;
      pen.setLineDash(dash(number).map((one) => one * 2));
      pen.beginPath();
      pen.moveTo(2, 6);
      pen.lineTo(42, 6);
      pen.stroke();
    });
  }

  stroke(pen, number) {
    pen.strokeStyle = this.lines.length > 24 ? style("--c0") : this.colour(number);
    pen.globalAlpha = this.lines.length > 24 ? 0.45 : 1;
    pen.setLineDash(this.lines.length > 24 ? [] : dash(number));
    pen.lineWidth = 1.75;
    pen.lineJoin = "round";
  }

  xs(line) {
    const steps = this.options.by !== "time" && line.steps.some((step) => step !== null);
    if (steps) return line.steps;
    const begin = this.options.begin?.(line);
    return begin === undefined ? line.times : line.times.map((time) => (time === null ? null : time - begin));
  }

  // Of a few points, a mean says less than they do.
  smooths(line) {
    return this.options.smooth > 0 && !line.dots && line.values.length > 10;
  }

  draw(into) {
    const shown = this.lines.filter((line) => !this.hidden.has(line.name));
    const width = into ? 1200 : Math.max(200, this.canvas.clientWidth || this.figure.clientWidth);
    const height = into ? 600 : width < 420 ? 190 : 230;
    const canvas = into || this.canvas;
    const scale = into ? 1 : window.devicePixelRatio || 1;
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
    if (!into) canvas.style.height = `${height}px`;
    const pen = canvas.getContext("2d");
    pen.scale(scale, scale);
    pen.fillStyle = style("--card");
    pen.fillRect(0, 0, width, height);
    const byTime = this.options.by === "time" || !shown.some((line) => line.steps.some((step) => step !== null));
    let [x0, x1, y0, y1] = [Infinity, -Infinity, Infinity, -Infinity];
    let start = Infinity;
    for (const line of shown) {
      const xs = this.xs(line);
      for (let at = 0; at < xs.length; at += 1) {
        const value = line.values[at];
        if (xs[at] === null || value === null) continue;
        if (this.options.log && value <= 0) continue;
        x0 = Math.min(x0, xs[at]); x1 = Math.max(x1, xs[at]);
        y0 = Math.min(y0, value); y1 = Math.max(y1, value);
      }
    }
    if (byTime) start = x0;
    const soft = style("--soft"), rule = style("--rule");
    pen.font = '12px system-ui, "Segoe UI", Roboto, "Liberation Sans", "DejaVu Sans", sans-serif';
    pen.textBaseline = "middle";
    if (!(x1 >= x0)) {
      pen.fillStyle = soft;
      const none = this.options.log && shown.some((line) => line.values.length > 0) ? "No numbers above 0, which a logarithmic scale needs" : "No numbers yet";
      pen.fillText(none, 12, height / 2);
      if (!into) this.label();
      return;
    }
    const value = (one) => (this.options.log ? Math.log10(one) : one);
    // A range that the numbers cannot leave, such as 0 to 100 percent, is shown whole.
    let [low, high] = this.options.within || [value(y0), value(y1)];
    // What differs in its last digits alone is drawn as one value.
    if (high - low <= 1e-9 * Math.max(Math.abs(low), Math.abs(high))) { low -= Math.abs(low) * 0.05 || 0.5; high += Math.abs(high) * 0.05 || 0.5; }
    const margin = (high - low) * 0.06;
    low -= margin; high += margin;
    const least = 1e-12 * Math.max(Math.abs(x0), Math.abs(x1));
    if (x1 - x0 <= least) { x0 -= Math.max(0.5, least); x1 += Math.max(0.5, least); }
    const marks = this.options.log ? marksOfLog(10 ** low, 10 ** high, height / 45) : ticks(low, high, height / 45);
    let words = marks.map((tick) => this.options.words(tick));
    // What differs in its last digits has as many digits as tell it apart.
    if (new Set(words).size < words.length && marks.length > 1) {
      const decimals = Math.min(12, Math.max(0, Math.ceil(-Math.log10(Math.abs(marks[1] - marks[0])))));
      words = marks.map((tick) => tick.toFixed(decimals));
    }
    const left = Math.max(36, ...words.map((word) => pen.measureText(word).width)) + 14;
    const right = 12, top = 8, bottom = 26;
    const x = (one) => left + ((one - x0) / (x1 - x0)) * (width - left - right);
    const y = (one) => height - bottom - ((value(one) - low) / (high - low)) * (height - top - bottom);
    pen.textAlign = "right";
    marks.forEach((tick, place) => {
      const at = y(tick);
      pen.fillStyle = rule;
      pen.fillRect(left, Math.round(at), width - left - right, 1);
      pen.fillStyle = soft;
      pen.fillText(words[place], left - 8, at);
    });
    pen.fillStyle = soft;
    pen.fillText(byTime ? "time" : this.options.unit || "step", left - 8, height - bottom + 14);
    pen.textAlign = "center";
    // Steps, epochs and trials are whole.
    const across = ticks(byTime ? 0 : x0, byTime ? x1 - start : x1, width / 110).filter((tick) => byTime || Number.isInteger(tick));
    for (const tick of across) {
      const at = x(byTime ? tick + start : tick);
      if (at < left - 1) continue;
      const text = byTime ? duration(tick) : digits(tick);
      const half = pen.measureText(text).width / 2;
      pen.fillStyle = soft;
      pen.fillRect(Math.round(at), height - bottom, 1, 4);
      if (at + half < width && at - half > left - 8) pen.fillText(text, at, height - bottom + 14);
    }
    const trace = (line, number, values, share) => {
      const xs = this.xs(line);
      this.stroke(pen, number);
      pen.globalAlpha *= share;
      pen.beginPath();
      let drawing = false, last = null, count = 0;
      for (let at = 0; at < xs.length; at += 1) {
        const one = values[at];
        if (xs[at] === null || one === null || (this.options.log && one <= 0)) {
          // A value that is none breaks the line, and is marked.
          if (one === null && xs[at] !== null) {
            pen.save();
            pen.fillStyle = style("--bad");
            pen.fillText("✕", x(xs[at]), top + 6);
            pen.restore();
          }
          drawing = false;
          continue;
        }
        const [px, py] = [x(xs[at]), y(one)];
        if (drawing) pen.lineTo(px, py);
        else pen.moveTo(px, py);
        drawing = true;
        last = [px, py];
        count += 1;
      }
      // Dots alone are points that do not follow from each other.
      if (!line.dots) pen.stroke();
      pen.setLineDash([]);
      if (last && (count < 30 || line.dots)) {
        pen.fillStyle = pen.strokeStyle;
        for (let at = 0; at < xs.length; at += 1) {
          if (xs[at] === null || values[at] === null || (this.options.log && values[at] <= 0)) continue;
          pen.beginPath();
          pen.arc(x(xs[at]), y(values[at]), 2.5, 0, 7);
          pen.fill();
        }
      }
      pen.globalAlpha = 1;
    };
    // What a mean smooths stays to be seen behind it.
    const means = new Map();
    this.lines.forEach((line, number) => {
      if (this.hidden.has(line.name)) return;
      if (this.smooths(line)) {
        means.set(line, smoothed(this.xs(line), line.values, x1 - x0, this.options.smooth));
        trace(line, number, line.values, 0.25);
      } else trace(line, number, line.values, 1);
    });
    for (const [line, mean] of means) trace(line, this.lines.indexOf(line), mean, 1);
    if (!into) {
      this.label();
      this.point(pen, { shown, means, x, y, left, width, height, bottom, top, right, x0, x1, byTime, start });
    } else {
      pen.textAlign = "left";
      pen.fillStyle = style("--ink");
      pen.fillText(this.options.title, left + 4, top + 8);
      const named = this.lines.map((line, number) => [line, number]).filter(([line]) => !this.hidden.has(line.name));
      named.slice(0, 12).forEach(([line, number], row) => {
        const at = top + 30 + 16 * row;
        this.stroke(pen, number);
        pen.beginPath();
        pen.moveTo(left + 10, at);
        pen.lineTo(left + 46, at);
        pen.stroke();
        pen.setLineDash([]);
        pen.globalAlpha = 1;
        pen.fillStyle = this.colour(number);
        pen.fillText(line.name, left + 54, at);
      });
    }
  }

  // The values under the pointer.
  point(pen, { shown, means, x, y, left, width, height, bottom, top, right, x0, x1, byTime, start }) {
    if (this.pointer === null || this.pointer < left || this.pointer > width - right) {
      this.tip.hidden = true;
      return;
    }
    const wanted = x0 + ((this.pointer - left) / (width - left - right)) * (x1 - x0);
    const lines = [];
    let place = null;
    for (const line of shown) {
      const xs = this.xs(line);
      let best = -1;
      for (let at = 0; at < xs.length; at += 1) {
        if (xs[at] === null) continue;
        if (best < 0 || Math.abs(xs[at] - wanted) < Math.abs(xs[best] - wanted)) best = at;
      }
      if (best < 0) continue;
      // Where a line has ended or not begun, it has no value.
      const [from, to] = [xs.find((one) => one !== null), xs.findLast((one) => one !== null)];
      const near = (x1 - x0) * 0.02;
      if (wanted < Math.min(from, to) - near || wanted > Math.max(from, to) + near) continue;
      place ??= xs[best];
      const mean = means.get(line)?.[best];
      const also = mean === undefined ? "" : ` (mean ${this.options.words(mean)})`;
      if (lines.length < 12) lines.push(`${line.name}: ${this.options.words(line.values[best])}${also}`);
      const here = mean === undefined ? line.values[best] : mean;
      if (here !== null && !(this.options.log && here <= 0)) {
        pen.fillStyle = style("--ink");
        pen.beginPath();
        pen.arc(x(xs[best]), y(here), 3.5, 0, 7);
        pen.fill();
      }
    }
    if (place === null) return;
    pen.fillStyle = style("--soft");
    pen.fillRect(Math.round(x(place)), top, 1, height - bottom - top);
    const after = this.options.begin ? "after the run's first value" : `after its first value (${clock(place)})`;
    const at = byTime ? `${duration(place - start)} ${after}` : `${this.options.unit || "step"} ${digits(place)}`;
    this.tip.textContent = [at, ...lines].join("\n");
    this.tip.hidden = false;
    const room = this.figure.clientWidth - this.tip.offsetWidth - 24;
    this.tip.style.left = `${Math.max(0, Math.min(this.pointer + 14, room))}px`;
    this.tip.style.top = "10px";
  }

  async link() {
    history.replaceState(history.state, "", `${location.pathname}${location.search}#${encodeURIComponent(this.id)}`);
    try {
      await navigator.clipboard.writeText(location.href);
      say("The link to this picture is copied.");
    } catch {
      say("The link to this picture is the page's address now.");
    }
  }

  png() {
    const canvas = document.createElement("canvas");
    this.draw(canvas);
    canvas.toBlob((blob) => blob && save(`${this.options.title}.png`, blob), "image/png");
  }

  csv() {
    const quoted = (text) => `"${String(text).replaceAll('"', '""').replace(/^[=+\-@\t]/, "'$&")}"`;
    const rows = ["curve,step,time,value"];
    for (const line of this.lines) {
      line.values.forEach((value, at) => rows.push([quoted(line.name), line.steps[at] ?? "", line.times[at] ?? "", value ?? "NaN"].join(",")));
    }
    save(`${this.options.title}.csv`, new Blob([rows.join("\n") + "\n"], { type: "text/csv" }));
  }
}

// Charts of curves by what they are about: losses together, accuracies together, everything else by itself.
export class Curves {
  // `aligned`: curves over time begin where their own run began, so that runs of different days lie above each other.
  constructor(holder, aligned = false) {
    this.aligned = aligned;
    this.begins = new Map();
    this.holder = el("div", { class: "charts" });
    this.lines = new Map();
    this.charts = new Map();
    const { by, log, smooth } = query();
    const kept = Number(smooth);
    this.options = { by: by === "time" ? "time" : "step", log: log === "1", smooth: kept > 0 && kept < 1 ? kept : 0 };
    holder.append(el("div", { class: "titled" }, el("h2", {}, "Curves"), this.tools()), this.holder);
  }

  // How the curves are drawn, which the page's address keeps.
  tools() {
    const change = (options, kept) => {
      Object.assign(this.options, options);
      for (const chart of this.charts.values()) chart.change(options);
      remember(kept);
    };
    const { by, log, smooth } = this.options;
    const way = el("select", { "aria-label": "Curves over", onchange: () => change({ by: way.value }, { by: way.value === "step" ? "" : way.value }) },
      el("option", { value: "step" }, "over steps"), el("option", { value: "time", selected: by === "time" }, "over time"));
    const scale = el("input", { type: "checkbox", id: "log-scale", checked: log, onchange: () => change({ log: scale.checked }, { log: scale.checked ? 1 : "" }) });
    const mean = el("input", { type: "range", id: "smooth", min: 0, max: 0.99, step: 0.01, value: smooth, oninput: () => change({ smooth: Number(mean.value) }, { smooth: mean.value > 0 ? mean.value : "" }) });
    return el("span", { class: "tools" }, el("label", {}, "smooth ", mean), el("label", {}, scale, " logarithmic"), way);
  }

  static group({ name, subject }) {
    return { loss: "Losses", accuracy: "Scores", rate: "Learning rate" }[subject] || name;
  }

  // `prefix` tells the curves of two runs apart.
  all(curves, prefix = "") {
    for (const key of [...this.lines.keys()]) if (key.startsWith(prefix)) this.lines.delete(key);
    for (const curve of curves) this.push(curve, prefix);
    this.arrange();
  }

  more(curves, prefix = "") {
    const known = this.lines.size;
    for (const curve of curves) this.push(curve, prefix);
    if (this.lines.size !== known) this.arrange();
    else for (const chart of this.charts.values()) chart.redraw();
  }

  push(curve, prefix) {
    const line = this.line(curve, prefix);
    line.push(curve.points);
    if (line.times.length > 0) this.begins.set(prefix, Math.min(this.begins.get(prefix) ?? Infinity, line.times[0]));
  }

  line(curve, prefix) {
    const key = prefix + curve.name;
    if (!this.lines.has(key)) {
      const line = new Line(key);
      line.prefix = prefix;
      line.group = Curves.group(curve) + (curve.counts === "epoch" ? " by epoch" : "");
      line.unit = curve.counts || "step";
      this.lines.set(key, line);
    }
    return this.lines.get(key);
  }

  arrange() {
    const groups = new Map();
    for (const line of this.lines.values()) {
      if (!groups.has(line.group)) groups.set(line.group, []);
      groups.get(line.group).push(line);
    }
    for (const [name, chart] of [...this.charts]) {
      if (groups.has(name)) continue;
      chart.close();
      chart.figure.remove();
      this.charts.delete(name);
    }
    for (const [name, lines] of groups) {
      if (!this.charts.has(name)) {
        const begin = this.aligned ? { begin: (line) => this.begins.get(line.prefix) } : {};
        this.charts.set(name, new Chart(this.holder, { title: name, unit: lines[0].unit, ...this.options, ...begin }));
      }
      this.charts.get(name).set(lines);
    }
  }

  get isEmpty() {
    return this.lines.size === 0;
  }

  close() {
    for (const chart of this.charts.values()) chart.close();
  }
}
