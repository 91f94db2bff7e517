// The page: its views, its colours, the API key, and what the service allows.

import * as api from "./api.js";
import { startColumn } from "./column.js";
import { byId, recall, remember, showProblem } from "./dom.js";
import { allowWriting } from "./links.js";
import { closeMap, openMap, redrawMap, startMap } from "./map.js";
import { startMention } from "./mention.js";
import { startPassage } from "./passage.js";
import { showDefault, startScope } from "./scope.js";

const VIEWS = ["mention", "passage", "column", "map"];
const THEMES = ["auto", "light", "dark"];
const THEME = "pearl-qdrant-theme";

function showView() {
  const wanted = window.location.hash.slice(1);
  if (wanted && !VIEWS.includes(wanted)) return; // a place within the view
  const shown = wanted || VIEWS[0];
  for (const view of VIEWS) {
    byId(`view-${view}`).hidden = view !== shown;
    const link = document.querySelector(`nav a[href="#${view}"]`);
    if (view === shown) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${byId(`title-${shown}`).textContent} · pearl-qdrant`;
  byId("types").hidden = shown === "map";
  byId("threshold-field").hidden = shown === "map";
  byId("filters-open").hidden = shown === "map";
  showDefault(shown);
  if (shown === "map") openMap();
  else closeMap();
}

function showTheme(theme) {
  document.documentElement.dataset.theme = theme;
  const button = byId("theme");
  button.textContent = `Colours: ${theme}`;
  redrawMap();
}

function startTheme() {
  const kept = recall("localStorage", THEME);
  let theme = THEMES.includes(kept) ? kept : "auto";
  showTheme(theme);
  byId("theme").addEventListener("click", () => {
    theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
    remember("localStorage", THEME, theme);
    showTheme(theme);
  });
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawMap);
}

function startKey() {
  const dialog = byId("key-dialog");
  let finish = () => null;
  api.onKeyWanted((wasWrong) => {
    byId("key-wrong").hidden = !wasWrong;
    byId("key").value = "";
    dialog.showModal();
    return new Promise((resolve) => {
      finish = resolve;
    });
  });
  byId("key-form").addEventListener("submit", () => finish(byId("key").value.trim() || null));
  byId("key-cancel").addEventListener("click", () => dialog.close());
  dialog.addEventListener("close", () => finish(null));
  byId("key-open").addEventListener("click", async () => {
    if (await api.enterKey()) window.location.reload();
  });
}

async function start() {
  startTheme();
  startKey();
  startMap();
  window.addEventListener("hashchange", () => {
    showView();
    if (VIEWS.includes(window.location.hash.slice(1))) byId("main").focus({ preventScroll: true });
  });
  byId("skip").addEventListener("click", (event) => {
    event.preventDefault();
    byId("main").focus();
  });
  try {
    const settings = await api.settings();
    byId("version").textContent = `pearl-qdrant ${settings.version}`;
    byId("key-open").hidden = !settings.needs_key;
    byId("writing").textContent = settings.allow_writing
      ? "Answers can be accepted and rejected; the collection learns from them."
      : "Read-only: answers can be accepted and rejected where the service is started for writing.";
    allowWriting(settings.allow_writing);
    startMention(settings);
    startPassage(settings);
    startColumn(settings);
    showView();
    await startScope();
  } catch (error) {
    showProblem(error.message);
  }
}

start();
