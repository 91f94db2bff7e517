// A link with its candidates: scores and reasons as bars, types, description, why it is NIL, and what people say of it.

import * as api from "./api.js";
import { colourClass, typeOf } from "./colours.js";
import { announce, bar, el, percent, plural, put } from "./dom.js";
import { collection } from "./scope.js";

/** Of a NIL, candidates after the first are folded away below this probability. */
const IMPROBABLE = 0.01;

const NIL_REASONS = {
  no_candidates: "No name of the collection comes near.",
  below_threshold: "The best candidate has less than the least probability.",
  ambiguous: "Several entities have this name, and nothing says which one is meant.",
  too_long: "This is too long to be a name.",
  several_names: "These are several names of the collection, and not one.",
  no_name: "This stands for nothing, or is a title or a number alone.",
};

/** Why there is no entity, in words. */
export const nilText = (reason) => NIL_REASONS[reason] ?? `The reason is ${reason}.`;

let canWrite = false;

/** Whether people may accept and reject links. */
export function allowWriting(allowed) {
  canWrite = allowed;
}

export function typeTags(candidate) {
  const coarse = candidate.types.map((type) => el("span", { className: `tag ${colourClass(type)}` }, type));
  const native = candidate.kb_types.filter((type) => !candidate.types.includes(type)).slice(0, 4);
  if (!coarse.length && typeOf(candidate) && candidate.phrase_type) {
    coarse.push(
      el("span", { className: `tag ${colourClass(typeOf(candidate))}`, title: "predicted from the name" }, typeOf(candidate)),
    );
  }
  return [...coarse, ...native.map((type) => el("span", { className: "tag" }, type))];
}

function score(label, value, title) {
  const shown = value === null || value === undefined ? "–" : value.toFixed(2);
  return el("span", { className: "score", title }, el("span", {}, label), bar(value, "thin"), el("span", {}, shown));
}

function allNames(candidate) {
  const place = el("div", {}, "…");
  const details = el("details", {}, el("summary", {}, "All names"), place);
  details.addEventListener("toggle", async () => {
    if (!details.open || details.dataset.read) return;
    details.dataset.read = "1";
    try {
      const entity = await api.entity(candidate.kb, candidate.entity_id, collection());
      const names = [entity.canonical_name, ...entity.aliases];
      const extra = Object.entries(entity.extra).map(([name, value]) => el("li", {}, `${name}: ${value}`));
      put(place, el("ul", { className: "names" }, names.map((name) => el("li", {}, name))), extra.length > 0 && el("ul", {}, extra));
    } catch (error) {
      delete details.dataset.read;
      put(place, error.message);
    }
  });
  return details;
}

async function learn(button, kind, body, whenLearned) {
  button.disabled = true;
  try {
    const learned = await api[kind]({ collection: collection(), ...body });
    const undo = `pearl-qdrant learn --undo ${learned.number} --collection ${collection()}`;
    await whenLearned(`Learned. To undo it: ${undo}`);
  } catch (error) {
    button.disabled = false;
    button.after(el("span", { className: "problem inline", role: "alert" }, error.message));
  }
}

function decisions(link, candidate, whenLearned) {
  if (!canWrite) return null;
  const name = candidate.canonical_name;
  const button = (kind, text) =>
    el(
      "button",
      {
        type: "button",
        className: "small",
        "aria-label": `${text}: ${link.mention} is ${kind === "reject" ? "not " : ""}${name}`,
        onclick: (event) =>
          learn(event.currentTarget, kind, { mention: link.mention, entity_id: candidate.entity_id }, whenLearned),
      },
      text,
    );
  return el("div", { className: "decide" }, button("accept", "Accept"), button("reject", "Reject"));
}

function candidateItem(link, candidate, whenLearned) {
  const isLinked = candidate.entity_id === link.entity_id && candidate.kb === link.kb;
  const other = candidate.name !== candidate.canonical_name;
  return el(
    "li",
    { className: `candidate ${colourClass(typeOf(candidate))} ${isLinked ? "linked" : ""}` },
    el(
      "div",
      { className: "head" },
      el("h3", {}, candidate.canonical_name, isLinked && el("span", { className: "unseen" }, " (linked)")),
      el("code", {}, candidate.entity_id),
      el("span", { className: "probability" }, bar(candidate.probability), el("b", {}, percent(candidate.probability))),
    ),
    el(
      "p",
      { className: "what" },
      typeTags(candidate),
      other && el("span", { className: "by" }, "by its name ", el("q", {}, candidate.name)),
      candidate.tie && el("span", { className: "tag" }, "same name as another"),
    ),
    candidate.description && el("p", { className: "description" }, candidate.description),
    el(
      "div",
      { className: "scores" },
      score("meaning", candidate.dense_score, "Cosine of the vectors of mention and name"),
      score("spelling", candidate.lexical_score, "Cosine of the character n-grams of mention and name"),
      allNames(candidate),
      decisions(link, candidate, whenLearned),
    ),
  );
}

const NUMBERED = /^\s+([+-]\d+\.\d\d)(?:\s+([+-]\d+\.\d\d))?\s\s(.+)$/;

/** The numbers of an explanation as bars, what speaks for it to the right; its other lines as they are. */
function reasons(lines) {
  const found = lines.map((line) => NUMBERED.exec(line));
  const most = Math.max(1, ...found.flatMap((one) => one?.slice(1, 3).map((value) => Math.abs(value ?? 0)) ?? []));
  const side = (value) => el("span", {}, bar(-value / most, "against"), bar(value / most), el("code", {}, value));
  return lines.map((line, place) => {
    if (!found[place]) return el("p", {}, line);
    const [, first, second, words] = found[place];
    return el("p", { className: "reason" }, side(first), second !== undefined && side(second), el("span", {}, words));
  });
}

function verdict(link) {
  if (link.entity_id !== null) {
    return el(
      "div",
      { className: "verdict" },
      el("p", {}, el("q", {}, link.mention), " is ", el("b", {}, link.canonical_name), " ", el("code", {}, link.entity_id)),
      el("span", { className: "probability" }, bar(link.probability), el("b", {}, percent(link.probability))),
    );
  }
  return el(
    "div",
    { className: "verdict nil" },
    el("p", {}, el("q", {}, link.mention), " is ", el("b", {}, "NIL"), ". ", nilText(link.nil_reason)),
    link.probability !== null && el("span", { className: "muted" }, `best candidate ${percent(link.candidates[0]?.probability)}`),
  );
}

/** Say a link in one sentence, for screen readers. */
export function spoken(link) {
  if (link.entity_id === null) return `${link.mention} is NIL. ${nilText(link.nil_reason)}`;
  return `${link.mention} is ${link.canonical_name}, probability ${percent(link.probability)}.`;
}

/**
 * Show a link in a place.
 *
 * `again` links the mention again, after people accepted or rejected something.
 */
export function showLink(place, link, { again = async () => null, note = null } = {}) {
  const whenLearned = async (text) => {
    const renewed = await again();
    if (renewed) showLink(place, renewed, { again, note: text });
    announce(`${text} ${renewed ? spoken(renewed) : ""}`);
    place.querySelector("h2")?.focus();
  };
  const isFolded = (one, place) => link.entity_id === null && place > 0 && (one.probability ?? 0) < IMPROBABLE;
  const shown = link.candidates.filter((one, place) => !isFolded(one, place));
  const folded = link.candidates.filter(isFolded);
  const nothing =
    canWrite &&
    el(
      "button",
      {
        type: "button",
        className: "small",
        onclick: (event) => learn(event.currentTarget, "accept", { mention: link.mention, entity_id: null }, whenLearned),
      },
      "None of them: accept NIL",
    );
  put(
    place,
    el("h2", { className: "unseen", tabIndex: -1 }, "Answer"),
    verdict(link),
    note && el("p", { className: "note" }, note),
    link.warnings?.map((text) => el("p", { className: "note" }, text)),
    link.explanation?.length > 0 &&
      el("details", { className: "why" }, el("summary", {}, "Why"), el("div", {}, reasons(link.explanation))),
    link.candidates.length > 0 && el("h2", {}, "Candidates"),
    el("ol", { className: "candidates" }, shown.map((one) => candidateItem(link, one, whenLearned))),
    folded.length > 0 &&
      el(
        "details",
        { className: "options" },
        el("summary", {}, `${plural(folded.length, "candidate")} below 1 %`),
        el("ol", { className: "candidates" }, folded.map((one) => candidateItem(link, one, whenLearned))),
      ),
    nothing,
  );
}
