// Suggestions while typing: a text field with a list, as WAI-ARIA describes a combobox.

import * as api from "./api.js";
import { typeTags } from "./links.js";
import { announce, debounce, el, plural, put } from "./dom.js";
import { scope } from "./scope.js";

const WAIT_MS = 90;
const MOST = 8;
const MOST_FAILURES = 5;

/** Suggest names in the field; `choose(name)` is called for the one that is chosen. */
export function startSuggestions(field, list, choose) {
  let found = [];
  let active = -1;
  let running = null;
  let failures = 0;
  let wanted = ""; // nothing where the list was closed: a late answer must not open it

  const close = () => {
    running?.abort();
    wanted = "";
    found = [];
    active = -1;
    list.hidden = true;
    field.setAttribute("aria-expanded", "false");
    field.removeAttribute("aria-activedescendant");
  };

  const mark = (place) => {
    active = (place + found.length + 1) % (found.length + 1); // one place more: the field itself
    for (const [number, item] of [...list.children].entries()) item.setAttribute("aria-selected", String(number === active));
    const item = list.children[active];
    if (item) {
      field.setAttribute("aria-activedescendant", item.id);
      item.scrollIntoView({ block: "nearest" });
    } else field.removeAttribute("aria-activedescendant");
  };

  const take = (place) => {
    field.value = found[place].name;
    close();
    choose(field.value);
  };

  const show = () => {
    put(
      list,
      found.map((one, place) =>
        el(
          "li",
          { id: `suggestion-${place}`, role: "option", "aria-selected": "false", onmousedown: (event) => event.preventDefault(), onclick: () => take(place) },
          el("span", { className: "name" }, one.name),
          one.name !== one.canonical_name && el("span", { className: "by" }, one.canonical_name),
          typeTags(one).slice(0, 2),
          one.description && el("span", { className: "muted clip" }, one.description),
        ),
      ),
    );
    active = -1;
    list.hidden = found.length === 0;
    field.setAttribute("aria-expanded", String(found.length > 0));
    if (found.length) announce(`${plural(found.length, "name")} begin so. Arrow keys choose one.`);
  };

  const ask = debounce(async () => {
    const q = wanted;
    if (!q || document.activeElement !== field) return;
    running = new AbortController();
    const { collection, types } = scope();
    try {
      const answer = await api.search({ q, collection, type: types, limit: MOST }, running.signal);
      if (wanted !== q) return;
      failures = 0;
      found = answer.results;
      show();
    } catch (error) {
      // Suggestions are a help, not a need: an index that is being built, or a service without them, is no problem.
      if (error.name !== "AbortError") failures += 1;
    }
  }, WAIT_MS);

  field.addEventListener("input", () => {
    running?.abort();
    const typed = field.value.trim();
    if (!typed) close();
    else if (failures < MOST_FAILURES) {
      wanted = typed;
      ask();
    }
  });
  field.addEventListener("blur", close);
  field.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && !list.hidden) {
      event.preventDefault();
      close();
    } else if (event.key === "Enter" && active >= 0 && active < found.length) {
      event.preventDefault();
      take(active);
    } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      if (list.hidden) return;
      event.preventDefault();
      mark(active + (event.key === "ArrowDown" ? 1 : active < 0 ? found.length : -1));
    }
  });
  return close;
}

