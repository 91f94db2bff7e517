// What is searched, the same for all views: collection, types and least probability.

import * as api from "./api.js";
import { byId, count, el, percent, put, showProblem } from "./dom.js";

const SHOWN = 10;
const SUGGESTED = 500;

const chosen = new Set();
const listeners = [];
let all = [];
let known = { types: [], kb_types: [] };
let defaults = null;
let view = "mention";

/** What requests say about the scope; empty parts are left out. */
export function scope() {
  const body = { collection: byId("collection").value };
  if (chosen.size) body.types = [...chosen];
  if (byId("threshold").value !== "") body.threshold = Number(byId("threshold").value);
  return body;
}

/** The least probability of a link: the one chosen, or that of the collection. */
export const threshold = () => scope().threshold ?? defaults?.threshold ?? 0.5;

export const collection = () => byId("collection").value;

/** What is known of the collection that is chosen. */
export const about = () => all.find((one) => one.collection === collection());

/** Run a function when another collection is chosen; it is given some of its names. */
export const onCollection = (run) => listeners.push(run);

/** Show which least probability counts in a view where none is chosen. */
export function showDefault(shown = view) {
  view = shown;
  const isPassage = view === "passage";
  const value = isPassage ? defaults?.passage_threshold : defaults?.threshold;
  const text = isPassage ? "default of passages" : "of the collection";
  byId("threshold").options[0].textContent = value === undefined ? text : `${percent(value)} (${text})`;
}

function showTypes() {
  const coarse = known.types.slice(0, SHOWN);
  const shown = new Set(coarse.map((one) => one.type));
  const others = [...chosen].filter((type) => !shown.has(type)).map((type) => ({ type }));
  put(byId("type-chips"), [...coarse, ...others].map(chip));
  const names = [...known.types.slice(SHOWN), ...known.kb_types].slice(0, SUGGESTED);
  put(byId("type-names"), names.map((one) => el("option", { value: one.type, label: `${count(one.names)} names` })));
}

function chip({ type, names }) {
  const box = el("input", {
    type: "checkbox",
    checked: chosen.has(type),
    onchange: () => (box.checked ? chosen.add(type) : chosen.delete(type)),
  });
  return el("label", { className: "chip" }, box, el("span", {}, type), names && el("small", {}, count(names)));
}

function addType() {
  const type = byId("type-other").value.trim();
  if (!type) return;
  chosen.add(type);
  byId("type-other").value = "";
  showTypes();
}

async function showCollection() {
  const { kb, kb_version: version, entities, names, calibrated, problem } = about() ?? {};
  const parts = [
    kb && [kb, version].filter(Boolean).join(" "),
    entities && `${count(entities)} entities`,
    names && `${count(names)} names`,
    kb && (calibrated ? "calibrated" : "not calibrated"),
  ];
  byId("about").textContent = parts.filter(Boolean).join(" · ");
  if (problem) showProblem(problem);
  chosen.clear();
  known = { types: [], kb_types: [] };
  showTypes();
  const of = collection();
  if (!of) return;
  try {
    const [found, its] = await Promise.all([api.types(of), api.defaults(of)]);
    if (of !== collection()) return;
    known = found;
    defaults = its;
    showDefault();
    byId("type-other").placeholder = known.kb_types.length ? `as in ${known.kb_types.at(-1).type}` : "";
    for (const run of listeners) run(its.examples);
  } catch (error) {
    if (of === collection()) showProblem(error.message);
  }
  showTypes();
}

/** Read the collections and show them; the one in the address of the page is chosen, else the largest. */
export async function startScope() {
  byId("collection").addEventListener("change", () => {
    showProblem(null);
    showCollection();
  });
  byId("filters-open").addEventListener("click", () => {
    const isOpen = byId("filters").classList.toggle("open");
    byId("filters-open").setAttribute("aria-expanded", String(isOpen));
  });
  byId("type-other").addEventListener("change", addType);
  byId("type-other").addEventListener("keydown", (event) => {
    if (event.key === "Enter") addType();
  });
  all = (await api.collections()).filter((one) => one.state !== "unusable");
  if (!all.length) showProblem("There is no collection yet. Create one with: pearl-qdrant ingest FILE");
  put(byId("collection"), all.map((one) => el("option", { value: one.collection }, one.collection)));
  const wanted = new URLSearchParams(window.location.search).get("collection");
  const largest = all.reduce((best, one) => ((one.names ?? 0) > (best?.names ?? -1) ? one : best), null);
  if (largest) byId("collection").value = all.some((one) => one.collection === wanted) ? wanted : largest.collection;
  await showCollection();
}
