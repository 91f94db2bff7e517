"""What mentions of every kind are made of: other forms of a name that mean the same, slips, and names of other fields.

Each function returns another form of a name, or None where the kind does not apply to it.

Slips of one character, as people, scanners and ears make them; never in a number, which would be another one.

Names of many fields, and words of everyday language: mentions without an entity, for bases that do not have them.
"""

from __future__ import annotations

import random
import re
import unicodedata

_BRITISH = dict(
    pair.split("/")
    for pair in (
        "tumor/tumour anemia/anaemia leukemia/leukaemia edema/oedema esophageal/oesophageal esophagus/oesophagus "
        "hemorrhage/haemorrhage hemorrhagic/haemorrhagic hemophilia/haemophilia hematologic/haematologic "
        "pediatric/paediatric orthopedic/orthopaedic gynecologic/gynaecologic diarrhea/diarrhoea fetal/foetal "
        "fetus/foetus estrogen/oestrogen celiac/coeliac cecum/caecum fecal/faecal anesthesia/anaesthesia "
        "ischemia/ischaemia ischemic/ischaemic hypoglycemia/hypoglycaemia hyperglycemia/hyperglycaemia "
        "septicemia/septicaemia uremia/uraemia toxemia/toxaemia etiology/aetiology orthopedics/orthopaedics "
        "hemolytic/haemolytic hemoglobin/haemoglobin hematoma/haematoma hemangioma/haemangioma "
        "leukemic/leukaemic anemic/anaemic dyspnea/dyspnoea apnea/apnoea amenorrhea/amenorrhoea maneuver/manoeuvre "
        "color/colour labor/labour harbor/harbour neighbor/neighbour honor/honour humor/humour vapor/vapour "
        "center/centre theater/theatre fiber/fibre liter/litre meter/metre caliber/calibre saber/sabre "
        "localized/localised generalized/generalised organization/organisation polymerization/polymerisation "
        "ionization/ionisation hospitalization/hospitalisation sulfur/sulphur sulfate/sulphate sulfide/sulphide "
        "aluminum/aluminium catalog/catalogue dialog/dialogue analog/analogue defense/defence license/licence "
        "gray/grey mold/mould plow/plough program/programme jewelry/jewellery signaling/signalling "
        "labeled/labelled traveler/traveller cesarean/caesarean archeology/archaeology leukocyte/leucocyte "
        "esophagitis/oesophagitis hematuria/haematuria paleontology/palaeontology encyclopedia/encyclopaedia"
    ).split()
)
_SPELLINGS = {**_BRITISH, **{b: a for a, b in _BRITISH.items()}}

_GREEK = {
    "alpha": "α",
    "beta": "β",
    "gamma": "γ",
    "delta": "δ",
    "epsilon": "ε",
    "kappa": "κ",
    "lambda": "λ",
    "omega": "ω",
}
_NUMERALS = {"ii": "2", "iii": "3", "iv": "4", "vi": "6", "vii": "7", "viii": "8", "ix": "9", "2": "II", "3": "III",
             "4": "IV", "6": "VI", "7": "VII", "8": "VIII", "9": "IX"}  # fmt: skip
_ROMAN_AFTER = frozenset("type stage class grade phase group part factor war level category chapter volume".split())

_LEGAL_FORMS = ("Inc.", "Ltd", "Corp.", "Corporation", "Company", "LLC", "plc")
_TITLES = ("Dr. ", "Mr. ", "Mrs. ", "Prof. ", "Sir ")

CONTEXTS: dict[str, tuple[str, ...]] = {
    "PERSON": ("{} himself", "the late {}", "books about {}", "a photo of {}", "{} and family", "young {}"),
    "GPE": ("the city of {}", "downtown {}", "{} area", "near {}", "trips to {}", "{} region"),
    "LOC": ("the {} area", "near {}", "{} region", "visit {}", "around {}"),
    "ORG": ("the {} company", "{} headquarters", "employees of {}", "{} office", "the {} group"),
    "": (
        "a case of {}", "patients with {}", "suspected {}", "the {}", "history of {}", "{} treatment", "severe {}",
        "about {}", "{} again", "possible {}", "examples of {}", "{} cases",
    ),
}  # fmt: skip
"""A few words around a name, by coarse type of the entity; those of "" fit any name. They name no entity."""


def other_case(name: str, rng: random.Random) -> str | None:
    """Lower case, upper case, title case, or the first letter alone in upper case."""
    forms = {name.lower(), name.upper(), name.title(), name[:1].upper() + name[1:].lower()} - {name}
    return rng.choice(sorted(forms)) if forms else None


def other_punctuation(name: str, rng: random.Random) -> str | None:
    """Without accents, with other hyphens, without punctuation, or with full stops in an acronym."""
    bare = "".join(c for c in unicodedata.normalize("NFKD", name) if not unicodedata.combining(c))
    forms = {bare, name.replace("-", " "), re.sub(r"[.,'’()\[\]]", "", name), re.sub(r"[-/]", "", name)}
    if re.fullmatch(r"[A-Z]{2,5}", name):
        forms.add(".".join(name) + ".")
    if name.count(" ") == 1:
        forms.add(name.replace(" ", "-"))
    forms = {" ".join(form.split()) for form in forms} - {name, ""}
    return rng.choice(sorted(forms)) if forms else None


def without_spaces(name: str, rng: random.Random) -> str | None:
    """All spaces left out, or one of them in a longer name."""
    words = name.split()
    if not 2 <= len(words) <= 5:
        return None
    if len(words) > 2 and rng.random() < 0.5:
        at = rng.randrange(len(words) - 1)
        return " ".join([*words[:at], words[at] + words[at + 1], *words[at + 2 :]])
    return "".join(words)


def plural(name: str, rng: random.Random) -> str | None:
    """The plural of the last word, or its possessive."""
    if not name[-1:].isalpha() or len(name) < 4:
        return None
    if rng.random() < 0.3:
        return f"{name}'s" if not name.endswith("s") else f"{name}'"
    last = name[-2:].lower()
    if last[1] == "s":
        return None
    if last[1] == "y" and last[0] not in "aeiou":
        return name[:-1] + "ies"
    return name + ("es" if last in ("ch", "sh") or last[1] in "xz" else "s")


def inverted(name: str, rng: random.Random) -> str | None:
    """The last word first with a comma; "X of Y" as "Y X"; or the part after a comma in front."""
    words = name.split()
    if "," in name:
        first, _, rest = name.partition(",")
        return f"{rest.strip()} {first.strip()}" if rest.strip() and "," not in rest else None
    if not 2 <= len(words) <= 6 or any(not w[0].isalnum() for w in words):
        return None
    if len(words) == 3 and words[1].lower() == "of":
        return rng.choice((f"{words[2]} {words[0]}", f"{words[2]}, {words[0]} of"))
    if {w.lower() for w in words} & {"of", "and", "or", "in", "with", "the", "to", "by"}:
        return None
    at = rng.choice((1, len(words) - 1))
    return f"{' '.join(words[at:])}, {' '.join(words[:at])}"


def affixed(name: str, types: tuple[str, ...], rng: random.Random) -> str | None:
    """With or without an article, a legal form (organisations) or a title (people)."""
    lowered = name.lower()
    if lowered.startswith("the ") and len(name) > 6:
        return name[4:]
    if "PERSON" in types:
        return rng.choice(_TITLES) + name
    if "ORG" in types and rng.random() < 0.6:
        bare = re.sub(r",? (inc|ltd|corp|corporation|company|llc|plc|co)\.?$", "", name, flags=re.IGNORECASE)
        return bare if bare != name else f"{name} {rng.choice(_LEGAL_FORMS)}"
    return rng.choice(("the ", "The ", "a ")) + name


def respelled(name: str, rng: random.Random) -> str | None:
    """British for American spelling or the reverse, Greek letters, Roman or Arabic numerals, Latin ligatures."""
    words = re.split(r"(\W+)", name)
    places = []
    for i, word in enumerate(words):
        lowered = word.lower()
        before = words[i - 2].lower() if i >= 2 else ""
        if lowered in _SPELLINGS:
            places.append((i, _SPELLINGS[lowered]))
        elif lowered.endswith("s") and lowered[:-1] in _SPELLINGS:
            places.append((i, _SPELLINGS[lowered[:-1]] + "s"))
        elif lowered in _GREEK:
            places.append((i, _GREEK[lowered]))
        elif lowered in _NUMERALS and (before in _ROMAN_AFTER or lowered in ("ii", "iii")):
            places.append((i, _NUMERALS[lowered]))
    if not places:
        return None
    at, other = rng.choice(places)
    kept = other.capitalize() if words[at][:1].isupper() and words[at][1:].islower() and other.islower() else other
    return "".join([*words[:at], kept, *words[at + 1 :]])


def initials(name: str, types: tuple[str, ...], rng: random.Random) -> str | None:
    """The first names of a person as initials; the initials of a longer name."""
    words = [word for word in re.findall(r"[^\W\d_]+", name) if word.lower() not in ("of", "and", "the", "in", "for")]
    if "PERSON" in types and 2 <= len(words) <= 3:
        return " ".join([*(f"{word[0].upper()}." for word in words[:-1]), words[-1]])
    if len(words) < 3 or len(words) > 6:
        return None
    short = "".join(word[0].upper() for word in words)
    return ".".join(short) + "." if rng.random() < 0.2 else short


def in_words(name: str, types: tuple[str, ...], rng: random.Random) -> str | None:
    """The name inside a few more words."""
    if len(name) < 4:
        return None
    of_type = [template for one in types for template in CONTEXTS.get(one, ())]
    return rng.choice(of_type or CONTEXTS[""]).format(name)


_ROWS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")
_LETTERS = "abcdefghijklmnopqrstuvwxyz"

KEYBOARD: dict[str, str] = {
    letter: "".join(sorted({c for row in _ROWS[max(0, y - 1) : y + 2] for c in row[max(0, x - 1) : x + 2]} - {letter}))
    for y, letters in enumerate(_ROWS)
    for x, letter in enumerate(letters)
}
"""Neighbours of each letter on a QWERTY keyboard."""

OCR: tuple[tuple[str, str], ...] = (
    ("m", "rn"), ("rn", "m"), ("l", "1"), ("i", "l"), ("o", "0"), ("e", "c"), ("c", "e"), ("h", "b"), ("cl", "d"),
    ("d", "cl"), ("u", "n"), ("n", "u"), ("f", "t"), ("t", "f"), ("w", "vv"), ("s", "5"), ("b", "6"), ("a", "o"),
)  # fmt: skip
"""Characters that optical recognition confuses."""

SOUNDS: tuple[tuple[str, str], ...] = (
    ("ph", "f"), ("f", "ph"), ("th", "t"), ("ie", "ei"), ("ei", "ie"), ("y", "i"), ("i", "y"), ("c", "k"), ("k", "c"),
    ("s", "c"), ("ck", "k"), ("sc", "s"), ("rh", "r"), ("ea", "ee"), ("ee", "ea"), ("er", "ar"), ("ance", "ence"),
    ("ence", "ance"), ("ll", "l"), ("l", "ll"), ("ss", "s"), ("s", "ss"), ("tt", "t"), ("t", "tt"), ("z", "s"),
)  # fmt: skip
"""Spellings of one sound, doubled letters among them."""

MIN_LETTERS = 4
"""Letters of a word that gets a slip: in `cat` one letter makes another word."""

_WORD = re.compile(rf"[^\W\d_]{{{MIN_LETTERS},}}")


def slip(name: str, rng: random.Random) -> str | None:
    """The name with one slip inside one of its longer words; None if it has none, or nothing changes."""
    words = list(_WORD.finditer(name))
    if not words:
        return None
    for _ in range(8):
        # A long word is mistyped more often.
        word = rng.choices(words, weights=[len(w.group()) for w in words])[0]
        changed = rng.choices(_MAKERS, weights=_WEIGHTS)[0](word.group(), rng)
        if changed is not None and changed.casefold() != word.group().casefold():
            return name[: word.start()] + changed + name[word.end() :]
    return None


def _typed(word: str, rng: random.Random) -> str | None:
    at = rng.randrange(len(word))
    near = KEYBOARD.get(word[at].lower())
    if near is None:
        return None
    letter = rng.choice(near)
    letter = letter.upper() if word[at].isupper() else letter
    return rng.choice((word[:at] + letter + word[at + 1 :], word[:at] + letter + word[at:]))


def _left_out(word: str, rng: random.Random) -> str:
    at = rng.randrange(len(word))
    return word[:at] + word[at + 1 :]


def _doubled(word: str, rng: random.Random) -> str:
    at = rng.randrange(len(word))
    return word[: at + 1] + word[at].lower() + word[at + 1 :]


def _swapped(word: str, rng: random.Random) -> str:
    at = rng.randrange(len(word) - 1)
    return word[:at] + word[at + 1] + word[at] + word[at + 2 :]


def _random_letter(word: str, rng: random.Random) -> str:
    at = rng.randrange(len(word))
    return word[:at] + rng.choice(_LETTERS) + word[at + 1 :]


def _replaced(pairs: tuple[tuple[str, str], ...], word: str, rng: random.Random) -> str | None:
    lowered = word.lower()
    places = [(m.start(), a, b) for a, b in pairs for m in re.finditer(re.escape(a), lowered)]
    if not places or len(lowered) != len(word):
        return None
    at, a, b = rng.choice(places)
    return word[:at] + b + word[at + len(a) :]


def _scanned(word: str, rng: random.Random) -> str | None:
    return _replaced(OCR, word, rng)


def _heard(word: str, rng: random.Random) -> str | None:
    return _replaced(SOUNDS, word, rng)


_MAKERS = (_typed, _left_out, _doubled, _swapped, _random_letter, _scanned, _heard)
_WEIGHTS = (3, 3, 1, 3, 1, 1, 2)
"""Typing makes most slips; by and large as in corpora of misspellings."""


OTHER_FIELDS: dict[str, tuple[str, ...]] = {
    "disease": (
        "asthma", "type 2 diabetes mellitus", "psoriasis", "measles", "multiple sclerosis", "scarlet fever",
        "rheumatoid arthritis", "Crohn's disease", "tuberculosis", "melanoma", "cystic fibrosis", "migraine", "gout",
        "Parkinson's disease", "glaucoma", "appendicitis", "whooping cough", "osteoporosis", "dengue fever", "anorexia",
    ),
    "anatomy": (
        "left ventricle", "femur", "optic nerve", "small intestine", "pituitary gland", "thoracic vertebra", "bladder",
        "eyelid", "spleen", "cerebellum", "fibula", "aortic valve", "skeletal muscle tissue", "lymph node", "trachea",
    ),
    "gene or process": (
        "DNA repair", "lipid transport", "BRCA1", "cell division", "glycolysis", "mitochondrial matrix", "TP53",
        "protein folding", "signal transduction", "kinase activity", "ribosome", "RNA splicing", "interleukin 6",
    ),
    "drug": (
        "ibuprofen", "amoxicillin", "metformin", "warfarin", "prednisone", "paracetamol", "insulin glargine",
        "morphine",
        "atorvastatin", "vitamin D3", "lithium carbonate", "naloxone", "clopidogrel", "salbutamol inhaler", "heparin",
    ),
    "place": (
        "Lake Geneva", "Buenos Aires", "Mount Kenya", "Ohio River", "Kyoto", "Isle of Wight",
        "Yellowstone National Park",
        "Gulf of Finland", "Casablanca", "Tasmania", "Black Forest", "Cape Horn", "Siberia", "Oslo", "Lower Saxony",
    ),
    "person": (
        "Marie Curie", "Nelson Mandela", "Frida Kahlo", "Wolfgang Amadeus Mozart", "Rosa Parks", "Charles Darwin",
        "Leo Tolstoy", "Simone Biles", "Johannes Kepler", "Emily Dickinson", "Muhammad Ali", "Ada Lovelace",
        "Galileo Galilei", "Maria Callas", "Thomas Edison",
    ),
    "organisation": (
        "Lufthansa", "Royal Dutch Shell", "Red Cross", "Manchester United", "Sony Corporation", "Greenpeace", "IKEA",
        "World Health Organization", "Deutsche Bank", "Harvard Medical School", "Toyota Motor", "Interpol", "Nestlé",
        "Boston Celtics", "Pfizer",
    ),
    "work": (
        "Moby Dick", "The Magic Flute", "Casablanca (film)", "Star Wars", "Pride and Prejudice", "Abbey Road",
        "Blade Runner", "The Starry Night", "Game of Thrones", "Don Quixote", "Swan Lake", "The Hobbit", "Citizen Kane",
    ),
    "technology": (
        "hash table", "Kubernetes", "linear regression", "PostgreSQL", "TCP/IP", "quicksort", "garbage collection",
        "convolutional neural network", "USB-C cable", "Ubuntu 22.04", "JavaScript", "lithium-ion battery", "OAuth 2.0",
    ),
    "law and money": (
        "income tax return", "power of attorney", "compound interest", "First Amendment", "mortgage rate", "VAT number",
        "breach of contract", "40 dollars", "copyright law", "double-entry bookkeeping", "GDPR", "stock split",
    ),
    "food and animals": (
        "apple pie", "olive oil", "golden retriever", "blue whale", "sourdough bread", "grizzly bear", "green tea",
        "honey bee", "tomato soup", "emperor penguin", "oak tree", "cheddar cheese", "red fox", "banana bread",
    ),
}  # fmt: skip
"""Well-known names by field. A field of which the base has names is left out."""

COMMON_WORDS: tuple[str, ...] = (
    *(
        "offices yesterday morning question answer window meeting open letters running people things week afternoon "
        "garden kitchen table chair bottle driver teacher holiday weather ticket number price problem idea reason "
        "beginning middle corner street road visitor customer colleague neighbour brother daughter marriage birthday "
        "breakfast dinner luggage suitcase holidays shopping reading writing walking talking waiting quickly slowly "
        "perhaps therefore although because between without another several enough almost already beautiful difficult "
        "interesting expensive possible important different similar ready tired hungry busy quiet loud empty heavy "
        "yellow purple wooden broken borrowed missing hidden promised delivered finished started cancelled repeated"
    ).split(),
    "the other day", "last week", "a few days later", "on the way home", "in the meantime", "good morning",
    "as soon as possible", "more or less", "thank you very much", "no idea", "next door", "half an hour", "see above",
    "please reply", "not applicable", "to be confirmed", "n/a", "unknown", "misc", "test",
)  # fmt: skip
"""Words and phrases that are seldom names."""

OPPOSITES: dict[str, str] = dict(
    pair.split("/")
    for one in (
        "left/right upper/lower acute/chronic primary/secondary northern/southern eastern/western north/south "
        "east/west "
        "benign/malignant early/late positive/negative male/female old/new major/minor internal/external "
        "anterior/posterior dominant/recessive adult/juvenile increased/decreased first/second high/low inner/outer "
        "central/peripheral maternal/paternal summer/winter men's/women's"
    ).split()
    for pair in (one, "/".join(reversed(one.split("/"))))
)
"""Words whose exchange makes another thing of the same kind."""
