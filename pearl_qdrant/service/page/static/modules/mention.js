// The view of one mention.

import * as api from "./api.js";
import { announce, byId, el, put } from "./dom.js";
import { showLink, spoken } from "./links.js";
import { onCollection, scope } from "./scope.js";
import { startSuggestions } from "./suggest.js";

let running = null;
let limit = 10;

async function ask(mention, signal) {
  const context = byId("mention-context").value.trim();
  const body = { ...scope(), mentions: [mention], limit, explain: true };
  if (context) body.context = context;
  if (body.types) body.type_mode = byId("mention-mode").value;
  return (await api.link(body, signal)).links[0];
}

async function run() {
  const place = byId("mention-result");
  const mention = byId("mention").value;
  running?.abort();
  if (!mention.trim()) {
    byId("mention").focus();
    return;
  }
  const mine = new AbortController();
  running = mine;
  place.setAttribute("aria-busy", "true");
  try {
    const link = await ask(mention, mine.signal);
    showLink(place, link, { again: () => ask(mention) });
    announce(spoken(link));
  } catch (error) {
    if (error.name === "AbortError") return;
    put(place, el("p", { className: "problem", role: "alert" }, error.message));
  } finally {
    if (running === mine) place.removeAttribute("aria-busy");
  }
}

function showExamples(examples) {
  byId("mention").placeholder = examples.length ? `as in ${examples[0]}` : "";
  const example = (text) =>
    el("button", { type: "button", className: "link", onclick: () => linkMention(text) }, text);
  put(byId("mention-result"), el("p", { className: "muted examples" }, examples.length > 0 && "Try ", examples.map((text) => [example(text), " "])));
}

/** Put a mention into the field and link it. */
export function linkMention(mention) {
  byId("mention").value = mention;
  run();
}

export function startMention(settings) {
  limit = settings.limit;
  byId("mention").maxLength = settings.max_mention_characters;
  const close = startSuggestions(byId("mention"), byId("suggestions"), run);
  byId("mention-form").addEventListener("submit", (event) => {
    event.preventDefault();
    close();
    run();
  });
  onCollection(showExamples);
}
