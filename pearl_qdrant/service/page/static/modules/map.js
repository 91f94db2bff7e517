// The view of the map: types to switch on and off, a name to find, the entity that is chosen.

import * as api from "./api.js";
import { colourClass, colourClasses } from "./colours.js";
import { announce, byId, count, debounce, el, plural, put } from "./dom.js";
import { linkMention } from "./mention.js";
import { Plot } from "./plot.js";
import { collection, onCollection } from "./scope.js";

let plot = null;
let shownOf = null;
let kb = null;
let running = null;
let isOpen = false;
const off = new Set();
const swatches = new Map();

const typeName = (type) => type ?? "no type";

function legend(points) {
  const counts = new Map();
  for (const { type } of points) counts.set(type, (counts.get(type) ?? 0) + 1);
  const types = [...counts.keys()].sort((a, b) => counts.get(b) - counts.get(a));
  const classes = colourClasses(types);
  swatches.clear();
  off.clear();
  const item = (type) => {
    const swatch = el("span", { className: `swatch ${classes.get(type)}`, "aria-hidden": "true" });
    swatches.set(type, swatch);
    const box = el("input", {
      type: "checkbox",
      checked: true,
      onchange: () => {
        if (box.checked) off.delete(type);
        else off.add(type);
        plot.draw();
      },
    });
    return el("label", { className: "check" }, box, swatch, el("span", {}, typeName(type)), el("small", {}, count(counts.get(type))));
  };
  put(byId("legend"), types.map(item));
}

const colours = () => new Map([...swatches].map(([type, swatch]) => [type, getComputedStyle(swatch).color]));

function isFound(point) {
  const wanted = byId("map-find").value.trim().toLowerCase();
  return !wanted || point.canonical_name.toLowerCase().includes(wanted);
}

function openMention(point) {
  window.location.hash = "mention";
  linkMention(point.canonical_name);
}

async function select(point) {
  const place = byId("map-selected");
  const button = el("button", { type: "button", onclick: () => openMention(point) }, "Link this name");
  const show = (...more) =>
    put(
      place,
      el("h2", {}, point.canonical_name),
      el("p", {}, el("code", {}, point.entity_id), " ", point.type && el("span", { className: `tag ${colourClass(point.type)}` }, point.type)),
      more,
      button,
    );
  show();
  announce(`${point.canonical_name}, ${typeName(point.type)}`);
  try {
    const entity = await api.entity(kb, point.entity_id, collection());
    if (plot.current !== point) return;
    show(
      entity.description && el("p", {}, entity.description),
      entity.aliases.length > 0 && el("p", { className: "muted" }, `Also: ${entity.aliases.slice(0, 12).join(", ")}`),
    );
  } catch {
    // The name and id are shown already.
  }
}

async function load() {
  const of = collection();
  if (!isOpen || !of || shownOf === of) return;
  running?.abort();
  running = new AbortController();
  const lead = byId("map-lead");
  lead.textContent = "The map is being made …";
  byId("plot").setAttribute("aria-busy", "true");
  announce(lead.textContent);
  put(byId("map-selected"), el("p", { className: "muted" }, "Choose an entity on the map."));
  try {
    const answer = await api.map({ collection: of }, running.signal);
    shownOf = of;
    kb = answer.kb;
    legend(answer.points);
    plot.show(answer.points);
    lead.textContent = `${plural(answer.points.length, "entity", "entities")} of ${of}, placed by their first two principal components: those with names of near meaning lie near each other.`;
    announce(lead.textContent);
  } catch (error) {
    if (error.name !== "AbortError") lead.textContent = error.message;
  } finally {
    byId("plot").removeAttribute("aria-busy");
  }
}

/** The view is shown. */
export function openMap() {
  isOpen = true;
  load();
  plot.draw();
}

/** The view is hidden. */
export function closeMap() {
  isOpen = false;
}

/** Colours have changed. */
export const redrawMap = () => plot?.draw();

export function startMap() {
  plot = new Plot(byId("plot"), {
    select,
    open: openMention,
    colourOf: colours,
    isShown: (point) => !off.has(point.type),
    isFound,
  });
  byId("zoom-in").addEventListener("click", () => plot.zoom(1.5));
  byId("zoom-out").addEventListener("click", () => plot.zoom(1 / 1.5));
  byId("zoom-all").addEventListener("click", () => plot.showAll());
  byId("map-find").addEventListener("input", debounce(() => {
    plot.draw();
    if (byId("map-find").value.trim()) announce(`${plural(plot.points.filter(isFound).length, "entity", "entities")} found.`);
  }, 120));
  onCollection(() => {
    shownOf = null;
    load();
  });
}
