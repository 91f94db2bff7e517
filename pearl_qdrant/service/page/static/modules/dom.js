// Elements, numbers and announcements. Text goes into the page as text only; there is no HTML in any string.

/** An element with properties and children; a child that is not an element becomes text, null and false nothing. */
export function el(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name in made && typeof value !== "object" && !name.includes("-")) made[name] = value;
    else made.setAttribute(name, value === true ? "" : value);
  }
  put(made, ...children);
  return made;
}

/** Replace what an element contains. */
export function put(parent, ...children) {
  const kept = children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false);
  parent.replaceChildren(...kept.map((child) => (child instanceof Node ? child : document.createTextNode(String(child)))));
}

export const byId = (id) => document.getElementById(id);

let announced = 0;

/** Say something to screen readers. */
export function announce(text) {
  announced += 1;
  // A text that does not change is not read: an invisible space makes each one new.
  byId("status").textContent = announced % 2 ? text : `${text}\u00a0`;
}

/** Show a problem above the views; null removes it. */
export function showProblem(text) {
  const place = byId("problem");
  place.hidden = !text;
  place.textContent = text || "";
}

export const count = (number) => new Intl.NumberFormat("en").format(number);

/** A probability as people read it: 71 %, never 100 % or 0 % where it is less or more. 0.985 is 98 %, as the command line
 * has 0.98: the nearest number that a computer holds is less. */
export function percent(probability) {
  if (probability === null || probability === undefined) return "–";
  if (probability > 0.99 && probability < 1) return "> 99 %";
  if (probability > 0 && probability < 0.01) return "< 1 %";
  return `${Math.round(probability.toFixed(2) * 100)} %`;
}

/** "1 mention", "2 mentions". */
export const plural = (number, noun, nouns = `${noun}s`) => `${count(number)} ${number === 1 ? noun : nouns}`;

/** A bar for a share in [0, 1]. The number stands beside it, so screen readers skip the bar. */
export function bar(share, kind = "") {
  const fill = el("span", { className: "fill" });
  fill.style.inlineSize = `${Math.max(0, Math.min(1, share ?? 0)) * 100}%`;
  return el("span", { className: `bar ${kind}`, "aria-hidden": "true" }, fill);
}

/** Hand a text to the user as a file. */
export function download(name, text, type) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = el("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

/** A function that runs when it was not called for a while. */
export function debounce(run, wait) {
  let timer = 0;
  return (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => run(...given), wait);
  };
}

/** A text that the browser keeps, in "localStorage" or "sessionStorage"; null where it keeps none, or refuses to. */
export function recall(storage, name) {
  try {
    return window[storage].getItem(name);
  } catch {
    return null;
  }
}

/** Keep a text in the browser, if it allows it. */
export function remember(storage, name, text) {
  try {
    window[storage].setItem(name, text);
  } catch {
    // Then it counts until the page is left.
  }
}
