// The view of a column: its values sent in batches, the answers in a table.

import * as api from "./api.js";
import { decode, findDelimiter, isBinary, parseTable } from "./csv.js";
import { announce, byId, count, el, plural, put } from "./dom.js";
import { showAnswers } from "./answers.js";
import { scope } from "./scope.js";

const BATCH = 50;
const CANDIDATES = 5;
const MOST_BYTES = 50e6;

const NAMES = /^(name|label|title|mention|value|term|entity|company|organi[sz]ation|city|country)s?$/i;
const LETTERS = /[\p{L}\p{M}]/gu;
const ROWS_LOOKED_AT = 200;

let rows = [];
let source = "table";
let limits = { max_mentions: BATCH, max_mention_characters: 1000 };
let running = null;

const hasHeader = () => byId("column-header").checked;
const body = () => rows.slice(hasHeader() ? 1 : 0);

function columnNames() {
  const width = rows.reduce((most, row) => Math.max(most, row.length), 0);
  return Array.from({ length: width }, (_, place) => (hasHeader() && rows[0][place]?.trim()) || `Column ${place + 1}`);
}

/** Whether a cell may be a name: mostly letters, no sentence, no address of mail or of a page. */
const isLikeName = (cell) => cell.length <= 60 && cell.match(LETTERS)?.length >= cell.length / 2 && !/@|:\/\//.test(cell);

/** The place of the column that has the names: by its header, else the one with the most different ones. */
function likelyColumn(names) {
  const called = names.findIndex((name) => NAMES.test(name.trim()));
  if (called >= 0) return called;
  const some = body().slice(0, ROWS_LOOKED_AT);
  const counts = names.map((_, place) => new Set(some.map((row) => (row[place] ?? "").trim()).filter(isLikeName)).size);
  return counts.indexOf(Math.max(...counts));
}

function showColumns() {
  const names = columnNames();
  const before = byId("column").value;
  put(byId("column"), names.map((name, place) => el("option", { value: String(place) }, name)));
  byId("column").value = before && Number(before) < names.length ? before : String(likelyColumn(names));
  byId("column-about").textContent = `${source}: ${plural(body().length, "row")}, ${plural(names.length, "column")}`;
}

function refuse(text) {
  byId("column-form").hidden = true;
  put(byId("column-result"), el("p", { className: "problem", role: "alert" }, text));
}

function readTable(text, name) {
  const clean = text.replace(/^\ufeff/, "");
  rows = parseTable(clean, findDelimiter(clean));
  source = name;
  put(byId("column-result"));
  if (!rows.length) {
    refuse(`${name} has no rows.`);
    return;
  }
  byId("column").value = "";
  byId("column-header").checked = rows.length > 1;
  byId("column-form").hidden = false;
  showColumns();
  announce(`${byId("column-about").textContent} read.`);
  byId("column").focus();
}

async function readFile(file) {
  if (!file) return;
  if (file.size > MOST_BYTES) {
    refuse(`${file.name} has ${count(Math.round(file.size / 1e6))} MB. For tables over ${MOST_BYTES / 1e6} MB use: pearl-qdrant link --file`);
    return;
  }
  const bytes = await file.arrayBuffer();
  if (isBinary(bytes)) {
    refuse(`${file.name} is no text: it is a spreadsheet, an archive or the like. Save it as CSV, or copy its rows and paste them below.`);
    return;
  }
  readTable(decode(bytes), file.name);
}

const rowKey = (cells) => JSON.stringify(cells);

/** Links of distinct rows, by their key: the value, and the cells beside it. The service would refuse no value. */
async function linkValues(values, properties, whenDone, signal) {
  const links = new Map();
  const size = Math.min(BATCH, limits.max_mentions);
  for (let start = 0; start < values.length; start += size) {
    const some = values.slice(start, start + size);
    const beside = Object.fromEntries(properties.map((name, at) => [name, some.map((cells) => cells[at + 1] || null)]));
    const mentions = some.map((cells) => cells[0]);
    const answer = await api.linkPatiently({ ...scope(), mentions, properties: beside, limit: CANDIDATES }, signal);
    for (const [place, link] of answer.links.entries()) links.set(rowKey(some[place]), link);
    whenDone(Math.min(values.length, start + size), links);
  }
  return links;
}

function isRunning(controller) {
  running = controller;
  byId("column-start").disabled = Boolean(controller);
  byId("column-stop").hidden = !controller;
  byId("column-progress-field").hidden = !controller;
}

/** The properties of the base that other columns have, with the names of these columns. */
const propertiesGiven = () =>
  byId("column-properties").value.split(",").map((one) => one.split("=").map((part) => part.trim()))
    .filter(([property]) => property).map(([property, name]) => [property, name ?? property]);

async function run() {
  const column = Number(byId("column").value);
  const names = columnNames();
  const beside = propertiesGiven();
  const unknown = beside.find(([, name]) => !names.includes(name));
  const place = byId("column-result");
  if (unknown) {
    put(place, el("p", { className: "problem", role: "alert" }, `There is no column ${unknown[1]}; there are: ${names.join(", ")}.`));
    return;
  }
  const used = [column, ...beside.map(([, name]) => names.indexOf(name))];
  const keys = body().map((row) => rowKey(used.map((at) => (row[at] ?? "").trim())));
  const isShort = (cell) => Array.from(cell.normalize("NFKC")).length <= limits.max_mention_characters; // as the service counts
  const values = [...new Set(keys)].map((key) => JSON.parse(key)).filter(([cell]) => cell && isShort(cell));
  if (!values.length) {
    put(place, el("p", { className: "problem", role: "alert" }, "The column has no values."));
    return;
  }
  const table = { names, rows: body(), keys, cells: keys.map((key) => JSON.parse(key)[0]), source };
  isRunning(new AbortController());
  let links = new Map();
  let problem = null;
  const progress = (done, found) => {
    links = found;
    byId("column-progress").value = done / values.length;
    byId("column-progress-text").textContent = `${count(done)} of ${plural(values.length, "value")}`;
  };
  progress(0, links);
  announce(`${plural(values.length, "value")} are sent.`);
  try {
    links = await linkValues(values, beside.map(([property]) => property), progress, running.signal);
  } catch (error) {
    problem = error.name === "AbortError" ? "Stopped." : error.message;
  }
  isRunning(null);
  if (links.size) showAnswers(place, table, links);
  else put(place);
  if (problem) {
    const text = links.size ? `${problem} ${count(links.size)} of ${plural(values.length, "value")} have an answer.` : problem;
    place.prepend(el("p", { className: "problem", role: "alert" }, text));
  }
}

function startDropping() {
  const drop = byId("drop");
  const stop = (event) => event.preventDefault();
  for (const kind of ["dragenter", "dragover"]) {
    drop.addEventListener(kind, (event) => {
      stop(event);
      drop.classList.add("over");
    });
  }
  drop.addEventListener("dragleave", () => drop.classList.remove("over"));
  drop.addEventListener("drop", (event) => {
    stop(event);
    drop.classList.remove("over");
    readFile(event.dataTransfer.files[0]);
  });
  // A file that misses the field must not replace the page.
  window.addEventListener("dragover", stop);
  window.addEventListener("drop", stop);
}

export function startColumn(settings) {
  limits = settings;
  startDropping();
  byId("file").addEventListener("change", () => {
    readFile(byId("file").files[0]);
    byId("file").value = "";
  });
  byId("rows-read").addEventListener("click", () => readTable(byId("rows").value, "Pasted rows"));
  byId("column-header").addEventListener("change", showColumns);
  byId("column-stop").addEventListener("click", () => running?.abort());
  byId("column-form").addEventListener("submit", (event) => {
    event.preventDefault();
    run();
  });
}
