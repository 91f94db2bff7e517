"""Words of headers: which columns they name, and whether a row is a header, or says what the columns under it hold."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence, Set
from functools import lru_cache
from importlib import resources
from itertools import islice, zip_longest
from typing import Any

import msgspec

from ingest.base.format import TableColumns
from pearl_qdrant.cells import text_of


def shown(cell: Any) -> str:
    """A cell as text, whatever it is."""
    return "" if cell is None else text_of(cell)


_WORDS = msgspec.json.decode(resources.files("ingest.readers").joinpath("header_words.json").read_bytes())


def _words(key: str) -> frozenset[str]:
    return frozenset(_WORDS[key].split())


HEADERS: dict[str, list[str]] = {what: words.split() for what, words in _WORDS["heads"].items()}
"""Words by what a column is, in order of preference, should a header have several; cells are compared without signs."""

LAST_WORDS: dict[str, list[str]] = {what: words.split() for what, words in _WORDS["last_words"].items()}
_SYMBOLS = _words("symbols")
"""Words that are ids where no column is called so; a symbol beside an id is an alias."""
_NUMBERS = (["nr"], ["no"], ["num"], ["number"])  # of a row or of an entity, where there is no other id

_OF_KINDS = _words("many_have_the_same")
"""Before a word for ids or names: many entities have the same."""

_JOINED = {
    "id": re.compile(r"[A-Z]{3,}(?:ID|CODE)"),
    "name": re.compile(r"(?!FIRST|LAST|SUR|USER|FILE|[A-Z]*(?:TYPE|CLASS|CATEGORY)NAME)[A-Z]{3,}NAME"),
}
_OF_PERSONS = _words("of_persons")
_PARTS = {word: place for place, words in enumerate(_WORDS["parts_of_a_name"]) for word in words.split()}
"""Columns of parts of a person's name, in their order in it."""
_TITLES = _words("titles")  # of a person, where the parts of the name have columns
_OF_OTHERS = _words("of_others")
"""Before a word for names: hardly the name of what a row is about, where another column may be."""
OTHER_NAMES = _words("other_names")
"""What a further column of names is called, before the word for names."""

LANGUAGES: list[str] = _WORDS["languages"].split()
"""Behind a word for names: the language of the names, those of a name in order of preference."""

HEADER_WORDS = _words("ends_of_heads")
"""Last words of heads of columns. Two of them, and only words beside, are hardly the id and the name of an entity."""

_BRACKETS = re.compile(r"\([^()]*\)|\[[^\[\]]*\]")
_AFTER = re.compile(r"; .*|:(?:string|int|long|float|double|boolean|date(?:time)?)\b.*", re.DOTALL)
"""Behind a column's name: that of a further value, and the kind of value in Neo4j's headers."""
_CAMEL = re.compile(r"(?<=[a-zß-ÿ])(?=[A-Z])")
_SIGNS = re.compile(r"[\W_]+")


def words_of(cell: str) -> list[str]:
    """The words of a cell of a header: class, id for ``ClassID``, ``class_id`` and ``Class ID (text)``."""
    plain = _AFTER.sub("", _BRACKETS.sub("", cell)) or cell
    return _SIGNS.sub(" ", _CAMEL.sub(" ", plain)).casefold().split()


KNOWN = {what: {"".join(words_of(word)): place for place, word in enumerate(some)} for what, some in HEADERS.items()}


def columns_of(header: Sequence[str], what: str, taken: Set[int] = frozenset()) -> list[int]:
    """The columns of a header that may be this: those of known words first, in order of preference, then those with a
    known last word.
    """
    return [i for _, _, i in ranked(header, what, taken)]


def ranked(header: Sequence[str], what: str, taken: Set[int] = frozenset()) -> list[tuple[int, int, int]]:
    """See `columns_of`; before each column how well its words are known, 0 the best, and its place among these."""
    whole, last = KNOWN[what], LAST_WORDS.get(what, ())
    found = []
    in_words = list(map(words_of, header))
    labelled = {tuple(words[:-1]) for words in in_words if words[-1:] == ["label"]} if what == "id" else ()
    in_ascii = {tuple(words[:-1]) for words in in_words if words[-1:] == ["ascii"]} if what == "name" else ()
    for i, words in enumerate(in_words):
        if i in taken or not words or words[0] in ("is", "has"):
            continue
        if (place := whole.get("".join(words))) is not None:
            found.append((0, place, i))
        elif len(words) > 1 and words[-1] in last and (what != "name" or words[-2] not in _OF_PERSONS):
            is_weak = words[-2] in {"name": _OF_KINDS | OTHER_NAMES, "id": _OF_KINDS}.get(what, ())
            is_of_others = what == "name" and words[-2] in _OF_OTHERS
            found.append((5 if is_of_others else 1 + 2 * is_weak, what == "id" and words[-1:] in _NUMBERS, i))
        elif what == "name" and (words[:2] == ["name", "of"] or tuple(words) in in_ascii):
            found.append((1, 0, i))
        elif what == "id" and _SYMBOLS & {words[0], words[-1]}:
            found.append((2, 0, i))
        elif what == "name" and words[-1] in LANGUAGES and words[-2:-1] and words[-2] in last:
            found.append((2, LANGUAGES.index(words[-1]), i))
        elif what == "id" and words in _NUMBERS:
            found.append((4, 0, i))
        elif what == "id" and words == ["key"] and any(len(one) > 1 and one[-1] == "key" for one in in_words):
            found.append((0, len(whole), i))
        elif tuple(words) in labelled or (what in _JOINED and _JOINED[what].fullmatch(header[i])):
            found.append((3, 0, i))
    return sorted(found)


def part_columns(header: Sequence[str]) -> dict[int, int]:
    """The columns of parts of a person's name, by their place in it."""
    found: dict[int, int] = {}
    for i, cell in enumerate(header):
        words = words_of(cell)
        words = [words[1], "name"] if words[:1] == ["name"] and len(words) == 2 else words  # nameFirst
        place = _PARTS.get("".join(words[-2:] if words[-1:] in (["name"], ["names"]) else words[-1:]).removesuffix("s"))
        if place is not None:
            found.setdefault(place, i)
    return found


def parts_of_name(header: Sequence[str]) -> tuple[int, ...]:
    """The columns of first, middle and last names, if no other column is, before them or as a whole, the name."""
    found = part_columns(header)
    parts = tuple(found[place] for place in sorted(found))
    others = [(rank, i) for rank, _, i in ranked(header, "name", {*parts}) if header[i].casefold() not in _TITLES]
    is_named = bool(others) and (others[0][0] == 0 or others[0][1] < min(parts, default=0))
    is_named = is_named or any(words_of(header[i])[-2:] in (["full", "name"], ["whole", "name"]) for _, i in others)
    return parts if 0 in found and len(found) > 1 and not is_named else ()


@lru_cache(maxsize=256)
def names_in(keys: tuple[str, ...]) -> tuple[int, ...]:
    """Which of the keys of an object, such as an alias, give its name; the parts of one, if there are several."""
    plain = [keys.index(key) for key in ("value", "name", "label", "text") if key in keys]
    parts = [i for i, key in enumerate(keys) if "".join(words_of(key)) in _PARTS]
    return tuple(plain[:1] or parts_of_name(keys) or columns_of(keys, "name")[:1] or parts[:1])


def is_header(cells: Sequence[str], columns: TableColumns) -> bool:
    """Whether a row is a header: it has every column that the options name, and words for ids and for names.

    Where the options give a number, a known word at that place is enough.
    """
    header = [cell.strip() for cell in cells]
    if len(header) < 2 or any(find_name(header, name) is None for name in columns.names()):
        return False
    known = (columns.id, "id"), (columns.name, "name")
    if any(
        value is not None and value.isdecimal() and 0 < int(value) <= len(header)
        and "".join(words_of(header[int(value) - 1])) in KNOWN[what]
        for value, what in known
    ):  # fmt: skip
        return True
    is_known = {"id": bool(columns_of(header, "id")), "name": bool(columns_of(header, "name") or parts_of_name(header))}
    if not all((value is not None and not value.isdecimal()) or is_known[what] for value, what in known):
        return False
    filled = list(filter(None, header))
    return len(set(filled)) == len(filled) or all(is_known.values())


def find_name(header: Sequence[str], name: str) -> int | None:
    """The column of exactly this name, else the first that differs in case alone."""
    return header.index(name) if name in header else next(iter(find_all(header, (name.casefold(),))), None)


def find_all(header: Sequence[str], words: Sequence[str], taken: Set[int] = frozenset()) -> tuple[int, ...]:
    """The columns of the words that are in the header and not taken; case does not matter."""
    folded = [cell.casefold().replace(" ", "_") for cell in header]
    found = (folded.index(word) for word in words if word in folded)
    return tuple(i for i in found if i not in taken)


INDEX = "Unnamed: "  # what pandas writes over a column without a name
NUMBER = re.compile(r"[-+]?[\d.,  ]*\d(?:[eE][-+]?\d+)?%?")
DIGIT = re.compile(r"\d")
_WORD = re.compile(r"[^\W\d_][\w .:/()#*&-]{0,39}")
_JOINED_WORDS = re.compile(r"[^\W\d_][^\W_]*(?:_[^\W_]+)+")
_N_TITLES = 20  # rows in which the header is looked for
_N_OTHERS = 5  # rows after the first that must have ids with digits
_MOST = 0.9  # of the rows
_SOME = 0.8  # of many cells; one may be a question


def looks_like_header(first: Sequence[Any], others: Sequence[Sequence[Any]]) -> bool:
    """Whether the first row of a table is a header, although its words for ids and names are not known: all its cells
    are different words, and two of them are `HEADER_WORDS`, one of several is the name of something, most have a sign
    between their words that no other row has, the ids of the others have digits and the first has none, or the others
    have numbers where it has words.
    """
    cells = [str(cell).strip() for cell in first]
    while cells and not cells[-1]:
        cells.pop()
    if "" in cells:
        return False
    n_words = sum(_WORD.fullmatch(cell) is not None for cell in cells)
    if (
        len(cells) < 2
        or len(set(cells)) < len(cells)
        or n_words < (1 if len(cells) < _N_OTHERS else _SOME) * len(cells)
    ):
        return False
    is_digit_less = not DIGIT.search(cells[0])
    is_over_nothing = (not any(shown(cell).strip() for cell in column) for column in zip_longest(*others))
    if is_digit_less and len(others) >= _N_OTHERS and any(islice(is_over_nothing, len(cells))):
        return True
    last = [(words_of(cell) or [""])[-1] for cell in cells]
    known = ("".join(words_of(cell)) for cell in cells)
    n_known = sum(
        word in HEADER_WORDS or any(cell in one for one in KNOWN.values())
        for word, cell in zip(last, known, strict=True)
    )
    if is_digit_less and n_known >= 2:
        return True
    n_joined = sum(_JOINED_WORDS.fullmatch(cell) is not None for cell in cells)
    if 2 * n_joined > len(cells) and others and not any("_" in shown(cell) for row in others for cell in row):
        return True
    if len(cells) > 2 and any(word == "name" != cell.casefold() for word, cell in zip(last, cells, strict=True)):
        return True
    has_digit = [bool(row and DIGIT.search(str(row[0]))) for row in others]
    if is_digit_less and len(has_digit) >= _N_OTHERS and all(has_digit):
        return True
    return any(
        sum(map(str.isalpha, cells[i])) > 1
        for i in _numbers(others)
        if i < len(cells) and not cells[i].startswith(INDEX)
    )


def find_header(
    rows: Sequence[Sequence[str]], known: Callable[[Sequence[str]], bool], *, width: int, may_guess: bool
) -> int | None:
    """The place of the header among the first rows, which are filled: one with known words, below titles that are
    shorter; else, if it `may_guess`, the first of the usual `width` if it `looks_like_header`.
    """
    titles = rows[:_N_TITLES]
    place = next((i for i, row in enumerate(titles) if known(row)), None)
    if place is not None and all(sum(map(bool, map(str.strip, row))) < len(rows[place]) for row in rows[:place]):
        return place
    first = next((i for i, row in enumerate(titles) if len(row) >= width), 0)
    return first if may_guess and rows and looks_like_header(rows[first], rows[first + 1 :]) else None


def is_no_row(
    header: Sequence[str], below: Sequence[str], others: Sequence[Sequence[str]], known: Callable[[Sequence[str]], bool]
) -> bool:
    """Whether the row under a header `is_below_header`, or is the header once more, in other letters."""
    same = sum(one.strip().casefold() == two.strip().casefold() for one, two in zip(header, below, strict=False))
    return (known(below) and 2 * same > len(below)) or is_below_header(below, others)


def _numbers(rows: Sequence[Sequence[Any]]) -> list[int]:
    """The columns that hold nothing but numbers; notes below the table may be shorter."""
    columns = zip_longest(*(map(shown, row) for row in rows), fillvalue="") if len(rows) >= _N_OTHERS else ()
    filled = [[text for cell in cells if (text := cell.strip())] for cells in columns]
    return [
        i for i, cells in enumerate(filled) if len(cells) >= _MOST * len(rows) and all(map(NUMBER.fullmatch, cells))
    ]


_RULER = re.compile(r"[-=+:|]*[-=]{2,}[-=+:|]*")
_TAG = re.compile(r"#\w+(?:\s*\+\s*\w+)*")  # of the Humanitarian Exchange Language
_KIND = re.compile(
    r"\(.*\)|\[.*\]|\d+[sdn]|units?|str(?:ing)?|text|(?:var)?char(?:acter)?|int(?:eger)?|long|float|double|"
    r"num(?:ber|eric)?|decimal|bool(?:ean)?|date(?:time)?|timestamp|object|category|key|id",
    re.IGNORECASE,
)


def is_below_header(row: Sequence[Any], others: Sequence[Sequence[Any]]) -> bool:
    """Whether the row under a header is no entity but says what its columns hold: a line, tags, kinds of values, or
    units, which stand where all rows after it have numbers.
    """
    cells = [shown(cell).strip() for cell in row]
    filled = list(filter(None, cells))
    if filled and all(map(_RULER.fullmatch, filled)):
        return True
    for sign in (_TAG, _KIND):
        if len(filled) > 1 and all(map(sign.fullmatch, filled)):
            return not any(all(sign.fullmatch(shown(cell).strip()) for cell in other) for other in others)
    numbers = {i for i in _numbers(others) if i < len(cells)}
    units = [cells[i] for i in numbers if cells[i]]
    rest = [cell for i, cell in enumerate(cells) if i not in numbers and cell.strip("-–")]
    is_plain = all(map(_KIND.fullmatch, rest))
    return bool(units) and is_plain and not any(map(NUMBER.fullmatch, units))
