// The answers for a column: a table to filter, to correct and to download.

import { formatTable } from "./csv.js";
import { announce, bar, count, download, el, percent, plural, put } from "./dom.js";
import { nilText } from "./links.js";
import { threshold } from "./scope.js";

const PAGE = 100;
const SURE = 0.9;
const ASKED = 30;
const SPREAD = 3;

const ADDED = ["entity_id", "canonical_name", "probability", "nil_reason", "decided_by"];

/** What stands for a cell: an entity or NIL, by the linker or by a person. */
class Answer {
  constructor(number, cell, link) {
    Object.assign(this, { number, cell, link, chosen: link?.entity_id ?? null, byPerson: false, isAsked: false });
  }

  get candidate() {
    return this.link?.candidates.find((one) => one.entity_id === this.chosen) ?? null;
  }

  get probability() {
    return this.candidate?.probability ?? null;
  }

  choose(id) {
    this.chosen = id;
    this.byPerson = id !== (this.link.entity_id ?? null);
  }

  /** A person says that it is right. */
  confirm() {
    this.byPerson = true;
  }

  /** Whether the answer may be wrong: less probable than `sure`, or NIL beside a candidate that is not improbable. */
  isDoubtful(sure) {
    if (!this.link || this.byPerson) return false;
    if (this.chosen !== null) return (this.probability ?? this.link.probability ?? 0) < sure;
    return (this.link.candidates[0]?.probability ?? 0) > 1 - sure;
  }

  get cells() {
    if (!this.link) return ["", "", "", "", ""];
    const name = this.candidate?.canonical_name ?? (this.chosen === null ? "" : this.link.canonical_name);
    const probability = this.chosen === null ? null : (this.probability ?? this.link.probability);
    const reason = this.chosen === null ? (this.byPerson ? "person" : this.link.nil_reason) : "";
    return [this.chosen ?? "", name, probability === null ? "" : probability.toFixed(4), reason, this.byPerson ? "person" : "linker"];
  }
}

/** The answers that tell a calibration most, as `choose_to_label` of the library has them; each value once. */
function askFor(answers) {
  const open = answers.filter(({ link }) => link?.candidates.length && !link.rule);
  const gap = ({ link }) => Math.abs((link.candidates[0].probability ?? 0) - threshold());
  const nearest = [...new Map(open.map((one) => [one.cell, one])).values()].sort((a, b) => gap(a) - gap(b));
  const step = Math.max(1, Math.min(SPREAD, Math.floor(nearest.length / ASKED)));
  return nearest.slice(0, SPREAD * ASKED).filter((_, place) => place % step === 0).slice(0, ASKED);
}

const FILTERS = [
  ["all", "All", () => true],
  ["linked", "Linked", (one) => one.link && one.chosen !== null],
  ["nil", "NIL", (one) => one.link && one.chosen === null],
  ["doubtful", "Doubtful", (one, sure) => one.isDoubtful(sure)],
  ["asked", "To label", (one) => one.isAsked],
];

/** The table of the file with the answers behind its columns. Names of columns stay different. */
export function withAnswers(table, answers) {
  const added = ADDED.map((name) => {
    let free = name;
    while (table.names.includes(free)) free = `linked_${free}`;
    return free;
  });
  const width = table.names.length;
  const whole = (row) => Array.from({ length: width }, (_, place) => row[place] ?? "");
  return [[...table.names, ...added], ...table.rows.map((row, place) => [...whole(row), ...answers[place].cells])];
}

function chooser(answer, changed) {
  const { link } = answer;
  if (!link) return el("span", { className: "muted" }, answer.cell ? "no answer" : "empty");
  const option = (one) =>
    el("option", { value: one.entity_id, selected: one.entity_id === answer.chosen }, `${one.canonical_name} (${percent(one.probability)})`);
  const select = el(
    "select",
    { "aria-label": `Entity of ${answer.cell}` },
    el("option", { value: "", selected: answer.chosen === null }, "NIL"),
    link.candidates.map(option),
  );
  select.addEventListener("change", () => {
    answer.choose(select.value === "" ? null : select.value);
    changed();
  });
  return select;
}

function stateOf(answer, sure, changed) {
  if (answer.byPerson) return "by hand";
  const confirm = () => {
    answer.confirm();
    changed();
  };
  const right = { type: "button", className: "small", onclick: confirm, "aria-label": `The answer for ${answer.cell} is right` };
  return [answer.isDoubtful(sure) && "doubtful ", answer.isAsked && el("button", right, "Right")];
}

function rowOf(answer, sure, changed) {
  const isNil = answer.link && answer.chosen === null;
  return el(
    "tr",
    { className: answer.isDoubtful(sure) ? "doubtful" : "" },
    el("td", { className: "number muted" }, count(answer.number)),
    el("th", { scope: "row" }, answer.cell),
    el("td", {}, chooser(answer, changed)),
    el("td", {}, answer.chosen !== null && el("code", {}, answer.chosen)),
    el(
      "td",
      { className: "number" },
      answer.chosen !== null && [bar(answer.probability), percent(answer.probability)],
      isNil && el("span", { className: "muted", title: nilText(answer.link.nil_reason) }, (answer.link.nil_reason ?? "").replaceAll("_", " ")),
    ),
    el("td", {}, stateOf(answer, sure, changed)),
  );
}

/** Show the answers: `table` has names, rows, cells, keys and source; `links` the link of each distinct key. */
export function showAnswers(place, table, links) {
  const answers = table.cells.map((cell, row) => new Answer(row + 1, cell, links.get(table.keys[row])));
  for (const one of askFor(answers)) one.isAsked = true;
  const state = { filter: "all", sure: SURE, shown: PAGE, byProbability: false };
  const tools = el("div", { className: "row tools-row" });
  const tbody = el("tbody");
  const more = el("div", { className: "row" });
  const sort = el("button", { type: "button", className: "link" }, "Probability");
  const sortHead = el("th", { scope: "col", "aria-sort": "none" }, sort);

  const matching = () => {
    const test = FILTERS.find(([name]) => name === state.filter)[2];
    const found = answers.filter((one) => test(one, state.sure));
    if (state.byProbability) found.sort((a, b) => (a.probability ?? -1) - (b.probability ?? -1));
    return found;
  };

  const showRows = () => {
    const found = matching();
    put(tbody, found.slice(0, state.shown).map((one) => rowOf(one, state.sure, changed)));
    const rest = found.length - state.shown;
    const next = () => {
      state.shown += PAGE;
      showRows();
    };
    put(
      more,
      found.length === 0 && el("p", { className: "note" }, "There are none."),
      rest > 0 && el("button", { type: "button", onclick: next }, `Show ${count(Math.min(PAGE, rest))} more of ${count(rest)}`),
    );
  };

  const counts = new Map();
  const changed = () => {
    for (const [name, , test] of FILTERS) {
      counts.get(name).textContent = count(answers.filter((one) => test(one, state.sure)).length);
    }
    showRows();
  };

  const choice = ([name, text]) => {
    counts.set(name, el("small", {}));
    const box = el("input", {
      type: "radio",
      name: "answers-filter",
      value: name,
      checked: name === state.filter,
      onchange: () => {
        Object.assign(state, { filter: name, shown: PAGE });
        showRows();
        announce(`${text}: ${plural(matching().length, "row")}.`);
      },
    });
    return el("label", { className: "chip" }, box, el("span", {}, text), counts.get(name));
  };

  const sure = el("input", { type: "number", min: 0, max: 100, step: 1, value: SURE * 100, id: "sure" });
  sure.addEventListener("input", () => {
    if (sure.value === "" || !sure.checkValidity()) return;
    state.sure = Number(sure.value) / 100;
    changed();
  });
  sort.addEventListener("click", () => {
    state.byProbability = !state.byProbability;
    sortHead.setAttribute("aria-sort", state.byProbability ? "ascending" : "none");
    showRows();
  });
  const save = (kind, text, type) => {
    const name = `${table.source.replace(/\.[a-z]+$/i, "").replace(/[^\w.-]+/g, "-")}-${kind}`;
    download(name, text, `${type};charset=utf-8`);
    announce(`${name} is saved.`);
  };
  const saveTable = () => save("linked.csv", formatTable(withAnswers(table, answers)), "text/csv");
  const saveLabels = () => {
    const labels = answers.filter((one) => one.byPerson);
    const lines = labels.map((one) => `${one.cell.replace(/\s+/g, " ")}\t${one.chosen ?? "NIL"}\n`);
    save("labels.tsv", [...new Set(lines)].join(""), "text/tab-separated-values");
  };
  const labels = { type: "button", onclick: saveLabels, title: "What you chose or said is right, for: pearl-qdrant calibrate --labelled" };
  put(
    tools,
    el("fieldset", { className: "chips" }, el("legend", { className: "unseen" }, "Rows to show"), FILTERS.map(choice)),
    el("label", { className: "field" }, "Doubtful below, in percent", sure),
    el("button", { type: "button", className: "primary", onclick: saveTable }, "Download CSV"),
    el("button", labels, "Download labels"),
  );
  const heads = [["Row", "number"], ["Value", ""], ["Entity", ""], ["Id", ""]].map(([name, kind]) =>
    el("th", { scope: "col", className: kind }, name),
  );
  const head = el("tr", {}, heads, sortHead, el("th", { scope: "col" }, el("span", { className: "unseen" }, "State")));
  put(
    place,
    el("h2", {}, "Answers"),
    tools,
    el(
      "div",
      { className: "scroll", tabIndex: 0, role: "region", "aria-label": "Answers as a table" },
      el("table", { className: "answers" }, el("thead", {}, head), tbody),
    ),
    more,
  );
  changed();
  const linked = answers.filter((one) => one.link && one.chosen !== null).length;
  announce(`${count(linked)} of ${plural(answers.length, "row")} have an entity.`);
}
