// The service's API. Addresses are relative, so that the page works below any path of a proxy.

import { recall, remember } from "./dom.js";

const KEPT_KEY = "pearl-qdrant-key";
const TRIES = 6;

let key = recall("sessionStorage", KEPT_KEY);

/** An answer that is an error; `code` is the service's word for it, `status` 0 means that there was no answer. */
export class ServiceError extends Error {
  constructor(message, { status = 0, code = "unreachable", retryAfter = 0 } = {}) {
    super(message);
    Object.assign(this, { status, code, retryAfter });
  }
}

let askForKey = async () => null;

/** Name the function that asks the user for a key; it resolves to null where the user gives none. */
export function onKeyWanted(ask) {
  askForKey = ask;
}

const headers = (extra) => (key ? { ...extra, "X-API-Key": key } : extra);

async function send(path, options) {
  try {
    return await fetch(path, { ...options, credentials: "same-origin", headers: headers(options.headers ?? {}) });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ServiceError("The service does not answer. Is it still running?");
  }
}

async function errorOf(answer) {
  let body = {};
  try {
    body = await answer.json();
  } catch {
    // Not from the service: a proxy answers in its own way.
  }
  const message = body.message || `The service answered ${answer.status}.`;
  const retryAfter = Number(answer.headers.get("Retry-After")) || 0;
  return new ServiceError(message, { status: answer.status, code: body.error || "http", retryAfter });
}

let asking = null;

async function renewKey(wasWrong) {
  asking ??= askForKey(wasWrong).finally(() => {
    asking = null;
  });
  const given = await asking;
  if (given) {
    key = given;
    remember("sessionStorage", KEPT_KEY, key);
  }
  return Boolean(given);
}

/** Ask the user for a key; resolves to whether there is one. */
export const enterKey = () => renewKey(false);

async function ask(path, options = {}) {
  for (;;) {
    const used = key;
    const answer = await send(path, options);
    if (answer.ok) return answer.json();
    const error = await errorOf(answer);
    if (error.status !== 401 || options.quiet) throw error;
    // Another request may have got a key meanwhile.
    if (key === used && !(await renewKey(Boolean(used)))) throw error;
  }
}

const pause = (seconds, signal) =>
  new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, seconds * 1000);
    signal?.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(signal.reason);
    });
  });

/** Ask again while the service is busy or not ready, as long as it says when to. */
async function patiently(request, signal) {
  for (let tried = 1; ; tried += 1) {
    try {
      return await request();
    } catch (error) {
      const isBusy = error instanceof ServiceError && (error.status === 429 || error.status === 503);
      if (!isBusy || tried === TRIES) throw error;
      await pause(Math.min(error.retryAfter || tried, 10), signal);
    }
  }
}

const post = (path, body, options = {}) =>
  ask(path, {
    ...options,
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
  });

function query(path, values) {
  const found = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) {
    for (const one of Array.isArray(value) ? value : [value]) if (one !== undefined && one !== null) found.append(name, one);
  }
  return `${path}?${found}`;
}

export const settings = () => ask("page/settings");
export const collections = async () => (await ask("v1/collections")).collections;
export const defaults = (collection) => patiently(() => ask(`v1/collections/${encodeURIComponent(collection)}`));
export const types = (collection) => patiently(() => ask(query("v1/types", { collection })));
export const search = (values, signal) => ask(query("v1/search", values), { signal, quiet: true });
export const link = (body, signal) => post("v1/link", body, { signal });
export const linkPatiently = (body, signal) => patiently(() => link(body, signal), signal);
export const annotate = (body, signal) => post("v1/annotate", body, { signal });
export const accept = (body) => post("v1/accept", body);
export const reject = (body) => post("v1/reject", body);
export const map = (values, signal) => patiently(() => ask(query("v1/map", values), { signal }), signal);
export const entity = (kb, id, collection) =>
  ask(query(`v1/entities/${encodeURIComponent(kb)}/${encodeURIComponent(id)}`, { collection }));
