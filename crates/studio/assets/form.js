// A form that is made of a JSON schema: names, texts and defaults are said there, and nowhere else.

import { el, fill } from "./dom.js";

// What a schema is behind its references, and without the null of what may be left out.
export function resolved(schema, root) {
  let own = schema === true ? {} : schema;
  while (own.$ref) {
    const { $ref, ...rest } = own;
    // "#" is the schema itself.
    const target = $ref.slice(2).split("/").filter(Boolean).reduce((at, name) => at[name], root);
    // What stands beside a reference adds to it.
    own = { ...target, ...rest, properties: target.properties || rest.properties ? { ...target.properties, ...rest.properties } : undefined };
  }
  const some = own.anyOf?.filter((one) => one.type !== "null");
  if (some && some.length === 1 && own.anyOf.length === 2) {
    const { anyOf, ...rest } = own;
    return { ...resolved(some[0], root), ...rest };
  }
  return own;
}

// A text of the documentation: what stands between backticks is code.
export const prose = (text) => text.replace(/\[`(?:\w+::)*(\w+)`\](?:\([^)]*\))?/g, "`$1`").split("`").map((part, at) => (at % 2 ? el("code", {}, part) : part));

const typeOf = (schema) => (Array.isArray(schema.type) ? schema.type.find((one) => one !== "null") : schema.type);

// The words of a choice.
function words(schema) {
  if (schema.enum) return schema.enum.map((word) => [word, ""]);
  const some = schema.oneOf || [];
  if (some.length && some.every((one) => one.const !== undefined || one.enum)) return some.flatMap((one) => (one.enum || [one.const]).map((word) => [word, one.description || ""]));
  return null;
}

// A number, true, a list, .. as somebody types it; what is none of them is a text.
export function guessed(text) {
  try { return JSON.parse(text); } catch { return text; }
}
// A hyperparameter as somebody types it: a script gets it as an argument, so a number that would be written in another way, such as 1.10
// or one of twenty digits, stays the text that it is.
function argument(text) {
  const value = guessed(text);
  return typeof value === "number" && String(value) !== text ? text : value;
}
const quoted = (value) => (typeof value === "string" && argument(value) !== value ? JSON.stringify(value) : typed(value));
export const typed = (value) => (value === undefined || value === null ? "" : typeof value === "string" ? value : JSON.stringify(value));
// A default, in the seven digits that a 32-bit number has.
const usual = (value) => typed(value === undefined ? value : JSON.parse(JSON.stringify(value), (_, one) => (typeof one === "number" ? Number(one.toPrecision(7)) : one)));

// The fields of an object's properties. `value` is the object that they change; `changed` is told after each change.
export function fields(schema, root, value, changed, id, names) {
  const required = new Set(schema.required || []);
  return names.map((name) => field(name, resolved(schema.properties[name], root), root, value, changed, `${id}.${name}`, required.has(name)));
}

function put(value, name, to, changed) {
  if (to === undefined || to === "") delete value[name];
  else value[name] = to;
  changed();
}

function field(name, schema, root, value, changed, id, isRequired) {
  const about = schema.description && el("p", { class: "about", id: `${id}-about` }, prose(schema.description));
  const attributes = { id, "aria-describedby": about ? `${id}-about` : null, autocomplete: "off", spellcheck: "false" };
  const label = el("label", { for: id }, name, isRequired && el("span", { class: "soft" }, " (required)"));
  const one = (control) => el("div", { class: "field", "data-of": id }, label, control, about);
  const type = typeOf(schema);
  const choice = words(schema);
  if (choice) {
    const none = schema.default === undefined ? "left out" : `${schema.default} (default)`;
    const options = [el("option", { value: "" }, none), choice.filter(([word]) => word !== schema.default).map(([word, said]) =>
      el("option", { value: word, selected: value[name] === word, title: said || null }, word))];
    return one(el("select", { ...attributes, onchange: (event) => put(value, name, event.target.value, changed) }, options));
  }
  if (type === "boolean") {
    const now = value[name] ?? schema.default ?? false;
    const box = el("input", { ...attributes, type: "checkbox", checked: now, onchange: (event) =>
      put(value, name, event.target.checked === (schema.default ?? false) ? undefined : event.target.checked, changed) });
    return el("div", { class: "field check", "data-of": id }, box, label, about);
  }
  if (type === "integer" || type === "number") {
    const input = el("input", { ...attributes, type: "text", inputmode: type === "integer" ? "numeric" : "decimal", value: typed(value[name]),
      placeholder: usual(schema.default) || null, oninput: (event) => put(value, name, event.target.value === "" ? undefined : guessed(event.target.value), changed) });
    return one(input);
  }
  if (type === "string") {
    return one(el("input", { ...attributes, type: "text", value: typed(value[name]), placeholder: usual(schema.default) || null,
      oninput: (event) => put(value, name, event.target.value, changed) }));
  }
  if (type === "object" && schema.properties) return group(name, schema, root, value, changed, id, about);
  if (type === "object") return pairs(name, schema, root, value, changed, id, about);
  const items = type === "array" && schema.items && resolved(schema.items, root);
  if (items && typeOf(items) === "object" && items.properties) return list(name, items, root, value, changed, id, about);
  if (items && typeOf(items) === "string" && !words(items)) {
    const input = el("input", { ...attributes, type: "text", value: (value[name] || []).join(", "), placeholder: "one, another",
      oninput: (event) => put(value, name, event.target.value.trim() ? event.target.value.split(",").map((one) => one.trim()) : undefined, changed) });
    return one(input);
  }
  // A number or a list of numbers, and their like.
  return one(el("input", { ...attributes, type: "text", value: typed(value[name]), placeholder: usual(schema.default) || null,
    oninput: (event) => put(value, name, event.target.value.trim() ? guessed(event.target.value) : undefined, changed) }));
}

// A table with known keys; it is left out while it is closed and empty.
function group(name, schema, root, value, changed, id, about) {
  const inner = value[name] || {};
  const told = () => {
    if (Object.keys(inner).length) value[name] = inner;
    else delete value[name];
    changed();
  };
  const names = ordered(schema, root);
  return el("details", { class: "group", "data-of": id, open: Object.keys(inner).length > 0 }, el("summary", {}, name), about,
    el("div", { class: "fields" }, fields(schema, root, inner, told, id, names)));
}

// Required keys first, tables last.
export function ordered(schema, root) {
  const place = (name) => {
    if ((schema.required || []).includes(name)) return 0;
    const one = resolved(schema.properties[name], root);
    const inner = typeOf(one) === "array" && one.items ? resolved(one.items, root) : one;
    return typeOf(inner) === "object" ? 2 : 1;
  };
  const names = Object.keys(schema.properties || {});
  return [0, 1, 2].flatMap((at) => names.filter((name) => place(name) === at));
}

// A table whose keys are names of the user's choice.
function pairs(name, schema, root, value, changed, id, about) {
  const inner = resolved(schema.additionalProperties ?? {}, root);
  const isText = typeOf(inner) === "string";
  const rows = Object.entries(value[name] || {});
  const body = el("div", { class: "pairs" });
  const told = () => {
    const kept = rows.filter(([key]) => key !== "");
    if (kept.length) value[name] = Object.fromEntries(kept);
    else delete value[name];
    changed();
  };
  const draw = (focus) => {
    fill(body, rows.map((row, at) => el("div", { class: "pair" },
      el("input", { type: "text", value: row[0], placeholder: "name", "aria-label": `name ${at + 1} of ${name}`, id: `${id}-${at}`, autocomplete: "off", spellcheck: "false",
        oninput: (event) => { row[0] = event.target.value; told(); } }),
      el("input", { type: "text", value: isText ? typed(row[1]) : quoted(row[1]), placeholder: "value", "aria-label": `value ${at + 1} of ${name}`, id: `${id}.${row[0]}`, autocomplete: "off", spellcheck: "false",
        oninput: (event) => {
          const text = event.target.value;
          // Of a text, only what is a table as JSON is more than the text.
          row[1] = isText ? text : inner.anyOf && !text.startsWith("{") ? text : argument(text);
          told();
        } }),
      el("button", { type: "button", class: "small", "aria-label": `Remove ${row[0] || `row ${at + 1}`} of ${name}`, onclick: () => { rows.splice(at, 1); draw(); told(); } }, "Remove"))),
    el("button", { type: "button", class: "small", onclick: () => { rows.push(["", ""]); draw(true); } }, `Add to ${name}`));
    if (focus) body.querySelector(".pair:last-of-type input")?.focus();
  };
  draw();
  return el("fieldset", { class: "field", "data-of": id }, el("legend", {}, name), about, body);
}

// A list of tables.
function list(name, items, root, value, changed, id, about) {
  const all = [...(value[name] || [])];
  const body = el("div", {});
  const told = () => {
    if (all.length) value[name] = all;
    else delete value[name];
    changed();
  };
  const draw = () => fill(body, all.map((one, at) => el("div", { class: "item" },
    el("div", { class: "fields" }, fields(items, root, one, told, `${id}.${at}`, ordered(items, root))),
    el("button", { type: "button", class: "small", "aria-label": `Remove ${at + 1} of ${name}`, onclick: () => { all.splice(at, 1); draw(); told(); } }, "Remove"))),
  el("button", { type: "button", class: "small", onclick: () => { all.push({}); draw(); told(); } }, `Add to ${name}`));
  draw();
  return el("fieldset", { class: "field", "data-of": id }, el("legend", {}, name), about, body);
}
