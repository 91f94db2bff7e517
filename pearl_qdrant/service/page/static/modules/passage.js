// The view of a passage: its mentions marked in the text.

import * as api from "./api.js";
import { colourClass, typeOf } from "./colours.js";
import { announce, bar, byId, el, percent, plural, put } from "./dom.js";
import { nilText, showLink } from "./links.js";
import { scope } from "./scope.js";

let running = null;

/** The type that colours a mention. */
function kindOf(link) {
  const found = link.candidates.find((one) => one.entity_id === link.entity_id);
  return found ? typeOf(found) : null;
}

const titleOf = (link) =>
  link.entity_id === null ? `NIL: ${nilText(link.nil_reason)}` : `${link.canonical_name}, ${percent(link.probability)}`;

function marked(passage, annotations, select) {
  const characters = Array.from(passage); // offsets count code points
  const parts = [];
  const marks = [];
  let end = 0;
  for (const [number, one] of annotations.entries()) {
    if (one.start < end) continue; // within the mention before
    parts.push(characters.slice(end, one.start).join(""));
    const choose = () => select(number);
    const mark = el(
      "span",
      {
        role: "button",
        tabIndex: 0,
        className: `mark ${one.link.entity_id === null ? "none" : colourClass(kindOf(one.link))}`,
        title: titleOf(one.link),
        "aria-pressed": "false",
        onclick: choose,
        onkeydown: (event) => {
          if (event.key !== "Enter" && event.key !== " ") return;
          event.preventDefault();
          choose();
        },
      },
      characters.slice(one.start, one.end).join(""),
      el("span", { className: "unseen" }, ` (${titleOf(one.link)})`),
    );
    marks[number] = mark;
    parts.push(mark);
    end = one.end;
  }
  parts.push(characters.slice(end).join(""));
  return { text: el("p", { className: "marked" }, parts), marks };
}

function table(annotations, select) {
  const row = (one, number) =>
    el(
      "tr",
      {},
      el("td", {}, el("button", { type: "button", className: "link", onclick: () => select(number) }, one.text)),
      el("td", {}, one.link.entity_id === null ? el("span", { className: "muted" }, "NIL") : one.link.canonical_name),
      el("td", {}, one.link.entity_id !== null && el("code", {}, one.link.entity_id)),
      el("td", {}, kindOf(one.link) && el("span", { className: `tag ${colourClass(kindOf(one.link))}` }, kindOf(one.link))),
      el("td", { className: "number" }, bar(one.link.probability), percent(one.link.probability)),
    );
  const heads = ["Mention", "Entity", "Id", "Type", "Probability"].map((name) => el("th", { scope: "col" }, name));
  return el(
    "div",
    { className: "scroll", tabIndex: 0, role: "region", "aria-label": "Mentions as a table" },
    el("table", {}, el("thead", {}, el("tr", {}, heads)), el("tbody", {}, annotations.map(row))),
  );
}

function show(place, passage, annotations) {
  if (!annotations.length) {
    put(place, el("p", { className: "note" }, "No mention was found. A smaller least probability finds more."));
    announce("No mention was found.");
    return;
  }
  const detail = el("div", { className: "detail panel", tabIndex: -1 }, el("p", { className: "muted" }, "Choose a mention to see its candidates."));
  const select = (number) => {
    for (const [other, mark] of marks.entries()) mark?.setAttribute("aria-pressed", String(other === number));
    const { link } = annotations[number];
    const again = async () => {
      const answer = await api.link({ ...scope(), mentions: [link.mention], context: passage, explain: true });
      return answer.links[0];
    };
    showLink(detail, link, { again, note: annotations[number].long_form && `Short for ${annotations[number].long_form}.` });
    announce(titleOf(link));
  };
  const { text, marks } = marked(passage, annotations, select);
  put(
    place,
    el("h2", {}, plural(annotations.length, "mention")),
    el("div", { className: "split" }, el("div", {}, text, table(annotations, select)), detail),
  );
  announce(`${plural(annotations.length, "mention")} found.`);
}

async function run() {
  const place = byId("passage-result");
  const text = byId("passage").value;
  running?.abort();
  if (!text.trim()) {
    byId("passage").focus();
    return;
  }
  const mine = new AbortController();
  running = mine;
  place.setAttribute("aria-busy", "true");
  const body = { ...scope(), text, include_nil: byId("passage-nil").checked, document: byId("passage-together").checked };
  try {
    show(place, text, (await api.annotate(body, mine.signal)).annotations);
  } catch (error) {
    if (error.name !== "AbortError") put(place, el("p", { className: "problem", role: "alert" }, error.message));
  } finally {
    if (running === mine) place.removeAttribute("aria-busy");
  }
}

export function startPassage(settings) {
  byId("passage").maxLength = settings.max_text_characters;
  byId("passage-form").addEventListener("submit", (event) => {
    event.preventDefault();
    run();
  });
  byId("passage").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) run();
  });
}
