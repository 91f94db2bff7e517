"""Other forms of a name that mean the same: case, punctuation, plural, order, affixes, spelling, initials, context.

Each function returns another form of a name, or None where the kind does not apply to it.
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
