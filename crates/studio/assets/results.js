// What `bench storage` and `scale` have measured and predicted.

import { bytes, card, digits, duration, el, fill, query, table, to } from "./dom.js";
import { ask } from "./net.js";

const word = (text) => [text, "word"];
const share = (value) => (Number.isFinite(value) ? `${(100 * value).toFixed(0)} %` : "–");
const seconds = (value) => (Number.isFinite(value) ? `${value.toFixed(2)} s` : "–");
const list = (value) => (Array.isArray(value) ? value : []);

export default async function results(main) {
  document.title = "Results · Stokehold studio";
  const { file } = query();
  if (file) {
    const { kind, result, path } = await ask("/api/result", { file });
    fill(main, el("p", { class: "eyebrow" }, kind === "storage" ? "storage, measured" : "scale, predicted"), el("h1", {}, file.split("/").pop()),
      el("p", { class: "note" }, to("/results", {}, "All results"), "  ", el("code", {}, path)), kind === "storage" ? storage(result) : scale(result));
    return null;
  }
  const { files, whole } = await ask("/api/results");
  fill(main, el("h1", {}, "Results"),
    files.length ? el("section", {}, el("ul", { class: "rows" }, files.map((name) => el("li", {}, to("/results", { file: name }, name)))),
      !whole && el("p", { class: "note" }, "And perhaps more: not all of the folders were looked through."))
      : el("p", { class: "note" }, "None is in the folders. Keep one there: ", el("code", {}, "stokehold bench storage PLACE .. --json > runs/storage.json"), " or ",
        el("code", {}, "stokehold scale RUN --json > runs/scale.json"), "."));
  return null;
}

function storage(all) {
  const money = (value) => (Number.isFinite(value) ? `${digits(value)} ${all.currency || ""}` : "–");
  const trainer = all.trainer_images_per_second;
  return [
    all.choose && card("To choose", el("p", { class: "verdict" }, el("b", {}, `${all.choose.way}, ${all.choose.place}: `), all.choose.why),
      trainer ? el("p", { class: "note" }, `For a trainer of ${digits(trainer)} images/s. Prices: ${all.prices}`) : el("p", { class: "note" }, `Prices: ${all.prices}`)),
    list(all.places).map((place) => card(String(place.place), el("p", { class: "note" },
      `${place.kind}; ${digits(place.images)} of ${digits(place.all_images)} images were read, ${bytes(place.bytes || 0)}${place.is_shards ? ", in shards" : ""}`),
    place.choose && el("p", {}, el("b", {}, `${place.choose.way}: `), place.choose.why),
    table([word("Way"), ["Start"], ["First batch"], ["Images/s, epoch 1"], ["Epoch 2"], ["Of local disk"], ["All images cost"], word("Remark")], list(place.rows).map((row) => [
      row.way, seconds(row.startup_seconds), seconds(row.first_batch_seconds), digits(list(row.epochs)[0]?.images_per_second), digits(list(row.epochs)[1]?.images_per_second),
      share(list(row.of_local_disk)[1]), money(list(row.cost)[1]), (row.failed && el("span", { class: "why" }, row.failed)) || row.problem || "–"]), `Ways of ${place.place}`)))];
}

function scale(all) {
  const money = (value) => (Number.isFinite(value) ? `${digits(value)} ${all.currency || ""}` : "–");
  const words = (cause) => String(cause ?? "computing").replaceAll("_", " ").replaceAll("-", " ");
  const sizes = list(all.sizes);
  const most = Math.max(...sizes.map((size) => size.seconds_per_epoch || 0), 1e-9);
  return [
    card("Machines", table([["Machines"], ["Ranks"], ["Batch"], ["Epoch"], ["Images/s"], ["Efficiency"], ["Cost of an epoch"], word("Limit")], sizes.map((size) => [
      size.machines, size.ranks, size.batch, duration(size.seconds_per_epoch), digits(size.images_per_second), share(size.efficiency), money(size.cost_per_epoch), words(size.limit)]), "Machines")),
    card("Where an epoch goes", table([["Machines"], ["Computing"], word("Lost")], sizes.map((size) => [size.machines, `${duration(size.computing_seconds)} (${share(size.computing_seconds / (size.seconds_per_epoch || most))})`,
      list(size.lost).filter((lost) => lost.seconds > 0).map((lost) => `${words(lost.cause)} ${duration(lost.seconds)}`).join(", ") || "nothing"]), "Where an epoch goes")),
    card("What it stands on", all.repeated && el("p", {}, `A recorded epoch took ${duration(all.repeated.recorded)}; simulated, the same takes ${duration(all.repeated.simulated)}.`),
      el("ul", {}, list(all.assumptions).map((one) => el("li", {}, one))))];
}
