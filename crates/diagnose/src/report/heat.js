// The heat map of a recording, and the stages of its steps: a module of the report's page and of the studio's. It takes what
// `report::heat` makes of a recording.

const GAP = 255;

const element = (tag, classes, text) => {
  const made = document.createElement(tag);
  if (classes) made.className = classes;
  if (text !== undefined) made.textContent = text;
  return made;
};
const colour = (name) => {
  const hex = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
};
const css = ([r, g, b]) => `rgb(${r},${g},${b})`;
const two = (number) => String(number).padStart(2, "0");

// Time after the start, as exact as a step of the axis asks for.
function clock(seconds, step) {
  if (step < 1 && Math.abs(seconds) < 60) {
    const places = Math.min(6, Math.max(0, Math.ceil(-Math.log10(step) - 1e-9)));
    return `${seconds.toFixed(places)} s`;
  }
  const sign = seconds < 0 ? "−" : "";
  const places = step < 1 ? Math.min(3, Math.ceil(-Math.log10(step) - 1e-9)) : 0;
  const unit = 10 ** places;
  const whole = Math.round(Math.abs(seconds) * unit) / unit;
  const days = Math.floor(whole / 86400);
  const hours = Math.floor(whole / 3600) % 24;
  const minutes = Math.floor(whole / 60) % 60;
  const rest = (whole % 60).toFixed(places).padStart(places ? places + 3 : 2, "0");
  const day = days ? `${days} d ` : "";
  if (days && step >= 3600) return sign + (hours ? `${day}${hours} h` : day.trim());
  if (days || hours) return `${sign}${day}${hours}:${two(minutes)}` + (step < 60 ? `:${rest}` : " h");
  return `${sign}${minutes}:${rest}`;
}
function span(seconds) {
  if (seconds < 1e-3) return `${(seconds * 1e6).toFixed(0)} µs`;
  if (seconds < 1) return `${(seconds * 1e3).toPrecision(3)} ms`;
  return seconds < 600 ? `${seconds.toPrecision(3)} s` : `${(seconds / 60).toFixed(1)} min`;
}
function timeStep(seconds, count) {
  const steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400];
  const rough = seconds / count;
  if (rough < 1) {
    const power = 10 ** Math.floor(Math.log10(rough));
    return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= rough);
  }
  return steps.find((step) => step >= rough) || Math.ceil(rough / 86400) * 86400;
}

// A level's bytes, inflated when they are first needed.
async function inflate(level, rows) {
  const text = atob(level.data);
  const bytes = Uint8Array.from(text, (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  level.bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  level.data = null;
  if (level.bytes.length !== rows * 3 * level.columns) throw new Error("a level is incomplete");
}
const loading = new Set();
function need(level, rows, then) {
  if (level.bytes || loading.has(level)) return;
  loading.add(level);
  inflate(level, rows).then(then, () => { level.broken = true; then(); });
}

// The coarsest level that has a column for every pixel in view, or else the finest that covers the view.
function best(node, from, to, pixels) {
  const wanted = (to - from) / pixels;
  const covering = node.levels.filter((level) => !level.broken && level.from <= from + 1e-6 + level.column
    && level.from + level.column * level.columns >= to - level.column - 1e-6);
  covering.sort((a, b) => b.column - a.column);
  return covering.find((level) => level.column <= wanted * 1.01) || covering[covering.length - 1];
}

// What a row shows from one time to another: mean, least, largest.
function look(level, row, from, to) {
  const { bytes, columns } = level;
  const base = row * 3 * columns;
  let first = Math.floor((from - level.from) / level.column + 1e-9);
  let last = Math.max(first + 1, Math.ceil((to - level.from) / level.column - 1e-9));
  first = Math.max(0, first);
  last = Math.min(columns, last);
  let sum = 0, count = 0, low = 255, high = -1;
  for (let at = first; at < last; at += 1) {
    const mean = bytes[base + at];
    if (mean === GAP) continue;
    sum += mean;
    count += 1;
    low = Math.min(low, mean - bytes[base + columns + at]);
    high = Math.max(high, mean + bytes[base + 2 * columns + at]);
  }
  return count ? [sum / count, low, high] : null;
}

// A heat map of one node.
function Plot(holder, run, node, view, redraw) {
  const plot = element("div", "plot");
  if (node.title) plot.append(element("h3", "", node.title));
  const canvas = element("canvas");
  canvas.tabIndex = 0;
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", `How busy each core and GPU of ${node.name} was over time`);
  const tip = element("div", "tip");
  tip.hidden = true;
  plot.append(canvas, tip);
  holder.append(plot);

  const groups = [];
  node.rows.forEach(([group], row) => {
    const last = groups[groups.length - 1];
    if (last && last.name === group) last.rows.push(row);
    else groups.push({ name: group, rows: [row] });
  });
  let layout;

  function arrange() {
    const width = Math.max(240, plot.clientWidth);
    const narrow = width < 560;
    const left = 104;
    let y = 22;
    const at = [];
    for (const group of groups) {
      const many = group.rows.length;
      const height = group.name === "Cores" || group.name.startsWith("GPU")
        ? Math.max(3, Math.min(16, Math.floor(420 / many))) : 14;
      group.top = y;
      for (const row of group.rows) {
        at[row] = { y, height };
        y += height;
      }
      group.bottom = y;
      y += 9;
    }
    layout = { width, narrow, left, plot: width - left - 8, at, bottom: y - 4, height: y + 20 };
  }

  function draw() {
    arrange();
    const scale = window.devicePixelRatio || 1;
    const { width, height, left } = layout;
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
    canvas.style.height = `${height}px`;
    const pen = canvas.getContext("2d");
    pen.scale(scale, scale);
    const [card, ink, soft, rule, gap] = ["--card", "--ink", "--soft", "--rule", "--gap"].map(colour);
    const heat = colour("--heat"), gpu = colour("--gpu"), blue = colour("--b");
    pen.fillStyle = css(card);
    pen.fillRect(0, 0, width, height);
    const font = '"Segoe UI", Roboto, "Liberation Sans", "DejaVu Sans", sans-serif';
    pen.font = `12px system-ui, ${font}`;
    pen.textBaseline = "middle";
    const x = (time) => left + ((time - view.from) / (view.to - view.from)) * layout.plot;
    // A run that ended before the other one of a pair, and the time before its start, are left as the card is.
    const shown = [Math.max(view.from, 0), Math.min(view.to, run.seconds)];
    const pixels = Math.round(layout.plot * scale);
    const level = best(node, Math.max(view.from, 0), Math.min(view.to, run.seconds), pixels);
    if (level && !level.bytes) need(level, node.rows.length, redraw);
    // Meanwhile the level that is there.
    const usable = level && level.bytes ? level : node.levels.find((other) => other.bytes);
    if (usable) {
      const shades = {};
      for (const [name, full] of [["Trainer", blue], ["GPU", gpu], ["", heat]]) {
        shades[name] = Array.from({ length: 101 }, (_, percent) => {
          const share = 0.04 + 0.96 * (percent / 100);
          return card.map((from, part) => Math.round(from + (full[part] - from) * share));
        });
      }
      const image = pen.createImageData(pixels, node.rows.length);
      const each = (view.to - view.from) / pixels;
      const which = { mean: 0, min: 1, max: 2 }[view.show];
      node.rows.forEach(([group, name], row) => {
        const table = name === "waits for data" ? shades[""]
          : shades[group === "Trainer" ? "Trainer" : group.startsWith("GPU") ? "GPU" : ""];
        for (let column = 0; column < pixels; column += 1) {
          const from = view.from + column * each;
          if (from + each <= shown[0] || from >= shown[1]) continue;
          const found = look(usable, row, from, from + each);
          const shade = found ? table[Math.round(found[which])] : gap;
          const place = 4 * (row * pixels + column);
          image.data[place] = shade[0];
          image.data[place + 1] = shade[1];
          image.data[place + 2] = shade[2];
          image.data[place + 3] = 255;
        }
      });
      const rows = document.createElement("canvas");
      rows.width = pixels;
      rows.height = node.rows.length;
      rows.getContext("2d").putImageData(image, 0, 0);
      pen.imageSmoothingEnabled = false;
      node.rows.forEach((_, row) => {
        const { y, height: tall } = layout.at[row];
        const inner = tall > 4 ? tall - 1 : tall;
        pen.drawImage(rows, 0, row, pixels, 1, left, y, layout.plot, inner);
      });
    } else {
      pen.fillStyle = css(soft);
      pen.fillText(level ? "…" : "This part of the data cannot be read by this browser.", left + 4, 60);
    }

    // Names of rows, as many as there is room for.
    pen.textAlign = "right";
    for (const group of groups) {
      const tall = layout.at[group.rows[0]].height;
      const every = Math.ceil(13 / tall);
      group.rows.forEach((row, number) => {
        if (number % every) return;
        pen.fillStyle = css(ink);
        const text = node.rows[row][1];
        const most = layout.narrow ? 12 : 16;
        const short = text.length > most ? `${text.slice(0, most - 1)}…` : text;
        pen.fillText(short, left - 6, layout.at[row].y + Math.max(tall, every > 1 ? 10 : tall) / 2);
      });
    }

    // Epochs above, steps as fine lines where they are wide enough to tell apart.
    const inside = (time) => time >= view.from && time <= view.to;
    pen.textAlign = "left";
    node.epochs.forEach(([from, to, number], place) => {
      if (to < view.from || from > view.to) return;
      const a = Math.max(x(from), left), b = Math.min(x(to), left + layout.plot);
      pen.fillStyle = css(place % 2 ? rule : soft);
      pen.fillRect(a, 15, Math.max(1, b - a - 1), 4);
      const text = `epoch ${number ?? place + 1}`;
      if (b - a > 18) {
        const short = b - a > 58 ? text : String(number ?? place + 1);
        pen.fillStyle = css(ink);
        pen.fillText(short, a, 7);
      }
    });
    const visible = node.steps.filter(([from]) => inside(from));
    if (visible.length && layout.plot / visible.length > 5) {
      pen.fillStyle = css(ink);
      pen.globalAlpha = 0.45;
      for (const [from] of visible) pen.fillRect(x(from), 20, 1, layout.bottom - 20);
      pen.globalAlpha = 1;
    }
    // Evidence of a finding that was asked for.
    if (view.rule) {
      pen.strokeStyle = css(colour("--m1"));
      pen.lineWidth = 2;
      for (const [rule_, from, to] of run.evidence) {
        if (rule_ !== view.rule || to < view.from || from > view.to) continue;
        const a = Math.max(x(from), left), b = Math.min(x(to), left + layout.plot);
        pen.strokeRect(a, 20, Math.max(2, b - a), layout.bottom - 20);
      }
    }
    // Where there is a column for every sample.
    pen.fillStyle = css(blue);
    for (const { from, column, columns } of node.levels) {
      const to = from + column * columns;
      if (to - from > run.seconds * 0.99 || to < view.from || from > view.to) continue;
      const a = Math.max(x(from), left);
      pen.fillRect(a, layout.bottom - 2, Math.max(2, Math.min(x(to), left + layout.plot) - a), 2);
    }
    view.column = Math.max(view.column, usable ? usable.column : 0);
    // The axis.
    const step = timeStep(view.to - view.from, layout.plot / 90);
    pen.textAlign = "center";
    for (let tick = Math.ceil(view.from / step - 1e-9) * step; tick <= view.to + step * 1e-9; tick += step) {
      const place = x(tick);
      pen.fillStyle = css(soft);
      pen.fillRect(place, layout.bottom, 1, 5);
      const text = clock(tick, step);
      const half = pen.measureText(text).width / 2;
      if (place + half <= width && place - half >= 0) pen.fillText(text, place, layout.bottom + 14);
    }
    if (selection) {
      pen.fillStyle = css(blue);
      pen.globalAlpha = 0.25;
      pen.fillRect(Math.min(...selection), 20, Math.abs(selection[1] - selection[0]), layout.bottom - 20);
      pen.globalAlpha = 1;
    }
  }

  const timeAt = (px) => view.from + ((px - layout.left) / layout.plot) * (view.to - view.from);
  const local = (event) => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  let selection = null;
  const pointers = new Map();
  let pinch = null;

  function tell(px, py) {
    const row = layout.at.findIndex((at) => at && py >= at.y && py < at.y + at.height);
    if (row < 0 || px < layout.left || px > layout.left + layout.plot) {
      tip.hidden = true;
      return;
    }
    const time = timeAt(px);
    const each = (view.to - view.from) / layout.plot;
    const level = best(node, Math.max(view.from, 0), Math.min(view.to, run.seconds), layout.plot);
    const usable = level && level.bytes ? level : node.levels.find((other) => other.bytes);
    if (!usable || time < 0 || time > run.seconds) {
      tip.hidden = true;
      return;
    }
    const found = look(usable, row, time - each / 2, time + each / 2);
    const lines = [node.rows[row][1]];
    if (!found) lines.push("no sample");
    else if (found[1] === found[2]) lines.push(`${Math.round(found[0])} %`);
    else lines.push(`mean ${found[0].toFixed(0)} %, from ${found[1]} to ${found[2]} %`);
    const stepsHere = node.steps.filter(([from, long]) => from <= time && from + long >= time);
    if (stepsHere.length) lines.push(`step ${stepsHere[0][2] ?? "?"}: ${span(stepsHere[0][1])}`);
    const epoch = node.epochs.find(([from, to]) => from <= time && to >= time);
    if (epoch) lines.push(`epoch ${epoch[2] ?? node.epochs.indexOf(epoch) + 1}`);
    const at = new Date((run.start + time) * 1000);
    const utc = Number.isFinite(at.getTime()) ? at.toISOString().slice(0, 19).replace("T", " ") + " UTC" : "";
    lines.push(`${clock(time, Math.max(each, usable.column))} after the start`, utc);
    tip.textContent = lines.join("\n");
    tip.hidden = false;
    const room = plot.clientWidth - tip.offsetWidth - 4;
    tip.style.left = `${Math.max(0, Math.min(px + 14, room))}px`;
    tip.style.top = `${py + canvas.offsetTop + 18}px`;
  }

  canvas.addEventListener("pointerdown", (event) => {
    const [px] = local(event);
    pointers.set(event.pointerId, px);
    if (pointers.size === 2) {
      const [a, b] = [...pointers.values()].map(timeAt);
      pinch = [a, b];
      selection = null;
    } else if (event.pointerType !== "touch") {
      canvas.setPointerCapture(event.pointerId);
      selection = [px, px];
    }
  });
  canvas.addEventListener("pointermove", (event) => {
    const [px, py] = local(event);
    if (pointers.has(event.pointerId)) pointers.set(event.pointerId, px);
    if (pinch && pointers.size === 2) {
      const [p, q] = [...pointers.values()];
      if (Math.abs(q - p) > 8) {
        const each = (pinch[1] - pinch[0]) / (q - p);
        view.set(pinch[0] - (p - layout.left) * each, pinch[0] + (layout.left + layout.plot - p) * each);
      }
      return;
    }
    if (selection) {
      selection[1] = Math.max(layout.left, Math.min(px, layout.left + layout.plot));
      draw();
    }
    tell(px, py);
  });
  const release = (event) => {
    pointers.delete(event.pointerId);
    if (pointers.size < 2) pinch = null;
    if (!selection) return;
    const [a, b] = selection.map(timeAt).sort((one, other) => one - other);
    const wide = Math.abs(selection[1] - selection[0]) > 4;
    selection = null;
    if (wide && event.type === "pointerup") view.set(a, b);
    else draw();
  };
  canvas.addEventListener("pointerup", release);
  canvas.addEventListener("pointercancel", release);
  canvas.addEventListener("pointerleave", () => { tip.hidden = true; });
  canvas.addEventListener("dblclick", () => view.all());
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    view.zoom(Math.exp(event.deltaY / 300), timeAt(local(event)[0]));
  }, { passive: false });
  canvas.addEventListener("keydown", (event) => {
    const act = { "+": () => view.zoom(0.5), "=": () => view.zoom(0.5), "-": () => view.zoom(2), 0: () => view.all(),
      ArrowLeft: () => view.move(-0.25), ArrowRight: () => view.move(0.25) }[event.key];
    if (act) {
      event.preventDefault();
      act();
    }
  });
  return draw;
}

// A heat map of all nodes of all runs that it shows, on one scale of time.
function Heat(holder, shown) {
  const seconds = Math.max(...shown.map((run) => run.seconds), 1e-3);
  const finest = Math.min(...shown.flatMap((run) => run.nodes.flatMap((node) => node.levels.map((l) => l.column))));
  const where = element("span", "where");
  const draws = [];
  let asked = false;
  const redraw = () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => {
      asked = false;
      const step = timeStep(view.to - view.from, 8) / 10;
      view.column = 0;
      draws.forEach((draw) => draw());
      // So close that a column of the data is many of the screen.
      const coarse = view.column > (view.to - view.from) / 100 ? `; the data here has a column each ${span(view.column)}` : "";
      where.textContent = `${clock(view.from, step)} to ${clock(view.to, step)}${coarse}`;
    });
  };
  const view = {
    from: 0, to: seconds, show: "mean", rule: null, column: 0,
    set(from, to) {
      const least = Math.min(seconds, finest * 8);
      const wide = Math.min(seconds, Math.max(to - from, least));
      const start = Math.max(0, Math.min((from + to - wide) / 2, seconds - wide));
      [view.from, view.to] = [start, start + wide];
      redraw();
    },
    zoom(factor, around = (view.from + view.to) / 2) {
      view.set(around - (around - view.from) * factor, around + (view.to - around) * factor);
    },
    move(share) {
      const by = (view.to - view.from) * share;
      view.set(view.from + by, view.to + by);
    },
    all() {
      view.rule = null;
      view.set(0, seconds);
    },
  };
  const tools = element("div", "tools");
  const button = (text, label, act) => {
    const made = element("button", "", text);
    made.type = "button";
    made.title = label;
    made.setAttribute("aria-label", label);
    made.addEventListener("click", act);
    tools.append(made);
  };
  button("+", "Look closer", () => view.zoom(0.5));
  button("−", "Look from further away", () => view.zoom(2));
  button("◀", "Earlier", () => view.move(-0.5));
  button("▶", "Later", () => view.move(0.5));
  button("All", "All of the run", () => view.all());
  const show = element("select");
  show.setAttribute("aria-label", "What a column of pixels shows");
  for (const [value, text] of [["mean", "mean"], ["max", "largest"], ["min", "least"]]) {
    const option = element("option", "", text);
    option.value = value;
    show.append(option);
  }
  show.addEventListener("change", () => {
    view.show = show.value;
    redraw();
  });
  tools.append(show, where);
  holder.append(tools);
  for (const run of shown) {
    for (const node of run.nodes) {
      if (!node.rows.length) continue;
      node.title = [run.label, shown.some((other) => other.nodes.length > 1) ? node.name : ""].filter(Boolean).join(", ");
      draws.push(Plot(holder, run, node, view, redraw));
    }
  }
  const legend = element("div", "legend");
  const scale = (kind, text) => {
    const item = element("span", "", "idle ");
    item.append(element("span", `scale ${kind}`), document.createTextNode(text));
    legend.append(item);
  };
  scale("cpu", "busy (cores and machine)");
  const all = shown.flatMap((run) => run.nodes.flatMap((node) => node.rows));
  if (all.some(([group]) => group.startsWith("GPU"))) scale("gpu", "busy (GPUs)");
  const stretches = shown.some((run) => run.nodes.some((node) => node.levels.some(
    (level) => level.column * level.columns < run.seconds * 0.99)));
  if (stretches) legend.append(element("span", "", "line on the axis: here every sample can be seen"));
  holder.append(legend);
  new ResizeObserver(redraw).observe(holder);
  redraw();
  return { view, shown, redraw, holder };
}

const COLOURS = { "Step:ModeKeys.TRAIN": 0, DataLoaderIter: 6, read: 2, decode: 1, augment: 3, DataLoaderWorker: 5 };
const WORDS = { "Step:ModeKeys.TRAIN": "training step", "Step:ModeKeys.EVAL": "validation step",
  DataLoaderIter: "wait for data", DataLoaderWorker: "worker busy", DataLoaderIterInitialize: "loader starts" };

// The stages of a chosen step as bars: a lane for the trainer and one for each worker.
function Gantt(holder, runs) {
  const choices = runs.flatMap((run) => run.nodes.flatMap((node) => node.stages.map((stage) => ({ run, node, stage }))));
  if (!choices.length) return;
  const tools = element("div", "tools");
  const select = element("select");
  select.setAttribute("aria-label", "Which step");
  choices.forEach(({ run, node, stage }, place) => {
    const of = [run.label, run.nodes.length > 1 ? node.name : ""].filter(Boolean).join(", ");
    const option = element("option", "", `${of ? `${of}: ` : ""}step ${stage.number ?? "?"}, ${span(stage.seconds)} (${stage.why.join(", ")})`);
    option.value = place;
    select.append(option);
  });
  const button = (text, label, by) => {
    const made = element("button", "", text);
    made.type = "button";
    made.setAttribute("aria-label", label);
    made.addEventListener("click", () => {
      select.value = (Number(select.value) + by + choices.length) % choices.length;
      draw();
    });
    return made;
  };
  tools.append(button("◀", "The step before", -1), select, button("▶", "The next step", 1));
  const place = element("div");
  holder.append(tools, place);
  const slowest = choices.findIndex(({ stage }) => stage.why.includes("slowest"));
  select.value = Math.max(0, slowest);
  const svgns = "http://www.w3.org/2000/svg";
  const shape = (tag, attributes, text) => {
    const made = document.createElementNS(svgns, tag);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    return made;
  };
  function draw() {
    const { stage } = choices[Number(select.value)];
    const width = Math.max(260, holder.clientWidth);
    const narrow = width < 560;
    const left = narrow ? 72 : 110;
    const lanes = new Map();
    for (const one of stage.spans) {
      const key = one[1] === null ? -1 : one[1];
      if (!lanes.has(key)) lanes.set(key, []);
      lanes.get(key).push(one);
    }
    const order = [...lanes.keys()].sort((a, b) => a - b);
    const tall = Math.max(14, Math.min(30, 360 / Math.max(1, order.length)));
    const height = order.length * tall + 26;
    const svg = shape("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "font-size": "13px",
      "aria-label": "The stages of the step over time" });
    const x = (time) => left + Math.max(0, Math.min(1, time / stage.seconds)) * (width - left - 8);
    const used = new Map();
    order.forEach((lane, number) => {
      const y = number * tall;
      const name = lane < 0 ? "trainer" : `worker ${lane}`;
      svg.append(shape("text", { x: left - 8, y: y + tall / 2 + 4, class: "end" }, name));
      svg.append(shape("rect", { x: left, y: y + 1, width: width - left - 8, height: tall - 3, class: "lane" }));
      // What contains other spans lies behind them.
      const spans = lanes.get(lane).slice().sort((a, b) => b[3] - a[3]);
      for (const [what, , start, long, step] of spans) {
        const kind = COLOURS[what] ?? 4;
        const words = WORDS[what] ?? what;
        used.set(kind === 4 ? "other phases" : words, kind);
        const inner = what === "DataLoaderWorker" || kind === 4 ? 0 : 3;
        const bar = shape("rect", { x: x(start), y: y + 1 + inner, height: tall - 3 - 2 * inner,
          width: Math.max(1, x(start + long) - x(start)), class: `s${kind}` });
        bar.append(shape("title", {}, `${words}${step === null ? "" : ` for step ${step}`}: ${span(long)}`));
        svg.append(bar);
      }
    });
    const step = timeStep(stage.seconds, (width - left) / 90);
    for (let tick = 0; tick <= stage.seconds * 1.0001; tick += step) {
      const text = stage.seconds < 1 ? `${+(tick * 1e3).toPrecision(6)} ms` : `${+tick.toPrecision(6)} s`;
      svg.append(shape("text", { x: x(tick), y: height - 6, class: "tick middle" }, text));
      svg.append(shape("line", { x1: x(tick), x2: x(tick), y1: height - 26, y2: height - 20, class: "grid" }));
    }
    const legend = element("div", "legend");
    for (const [words, kind] of used) {
      const item = element("span");
      item.append(element("span", `swatch s${kind}`), document.createTextNode(words));
      legend.append(item);
    }
    const notes = [`It began ${clock(stage.at, 0.01)} after the start.`];
    if (stage.left_out) notes.push(`${stage.left_out} shorter spans are not drawn.`);
    place.replaceChildren(svg, legend, element("p", "note", notes.join(" ")));
  }
  select.addEventListener("change", draw);
  new ResizeObserver(draw).observe(holder);
  draw();
}

export { Heat, Gantt };
