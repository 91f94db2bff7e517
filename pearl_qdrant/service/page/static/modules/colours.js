// Colours of types: the same type has the same colour in all views. The colours themselves are in base.css.

const FIXED = ["ORG", "PERSON", "GPE", "LOC", "FAC", "PRODUCT", "WORK_OF_ART", "EVENT", "NORP", "LANGUAGE", "LAW"];
const REST = "OTHER";

/** The type that colours an entity: coarse, else predicted ("NP-ORG"), else of the base. */
export function typeOf(candidate) {
  const predicted = candidate.phrase_type?.split("-").slice(1).join("-");
  return candidate.types?.[0] || predicted || candidate.kb_types?.[0] || null;
}

function hashed(type) {
  let sum = 0;
  for (const character of type) sum = (sum * 31 + character.codePointAt(0)) % 9973;
  return sum % FIXED.length;
}

/** The class with the colour of a type. */
export function colourClass(type) {
  if (!type || type === REST) return "k-rest";
  const place = FIXED.indexOf(type);
  return `k-${place >= 0 ? place : hashed(type)}`;
}

/** Colour classes of many types, the most frequent first: no two share one; those for which none is left are grey. */
export function colourClasses(types) {
  const found = new Map();
  const free = new Set(FIXED.keys());
  for (const type of types) {
    const place = FIXED.indexOf(type);
    if (place >= 0) {
      found.set(type, `k-${place}`);
      free.delete(place);
    }
  }
  for (const type of types) {
    if (found.has(type)) continue;
    const place = type && type !== REST ? free.values().next().value : undefined;
    if (place === undefined) found.set(type, "k-rest");
    else {
      found.set(type, `k-${place}`);
      free.delete(place);
    }
  }
  return found;
}
