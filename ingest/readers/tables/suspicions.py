"""What a text table looks like but is not read as: a header that is not known, and cells quoted as in CSV."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from ingest.io.report import ReadReport, ReadWarning, make_excerpt

HEADER_WORDS = frozenset(
    "code codes concept concept_id conceptid concept_name curie definition descriptor entity entity_name english_name "
    "full_name gene heading identifier iri item item_id item_label itemlabel key kind label labels lang language "
    "main_name mention name name_en names number official_name parent preferred_label preferred_name preferred_term "
    "preflabel pref_label primary_name primarytitle ref reference short_name source string surface symbol synonym "
    "synonyms tag term terms text title titles type types uid unique_id uri url uuid value word wikidata_id".split()
)
"""Words that head columns. Two of them, and nothing else but words, are hardly the id and the name of an entity."""

_WORD = re.compile(r"[^\W\d][\w .:/()#-]{0,39}")
_DIGIT = re.compile(r"\d")
_N_OTHERS = 5  # rows after the first that must have ids with digits
_DOUBLED = re.compile(r'"(?:[^"]|"")*""(?:[^"]|"")*"')
_QUOTED_ID = re.compile(r'"[^"\t]*"\t')
_MAX_SHOWN = 8  # cells in a warning


def looks_like_header(first: Sequence[str], others: Sequence[Sequence[str]]) -> bool:
    """Whether the first row of a table is a header, although its words are not known.

    Args:
        first: The cells of the first row.
        others: The cells of some rows after it.

    Returns:
        Whether all its cells are different words, the first one without a digit, and either two of them are
        `HEADER_WORDS`, or the ids of all the other rows have digits.
    """
    cells = [cell.strip() for cell in first]
    is_words = all(map(_WORD.fullmatch, cells)) and len(set(cells)) == len(cells)
    if len(cells) < 2 or not is_words or _DIGIT.search(cells[0]):
        return False
    if sum(cell.casefold().replace(" ", "_") in HEADER_WORDS for cell in cells) >= 2:
        return True
    has_digit = [bool(row and _DIGIT.search(row[0])) for row in others]
    return len(has_digit) >= _N_OTHERS and all(has_digit)


def header_warning(path: str, line: int, first: Sequence[str]) -> ReadWarning:
    """The warning for a first row that looks like a header."""
    shown = ", ".join(make_excerpt(cell.strip()) for cell in first[:_MAX_SHOWN])
    more = ", ..." if len(first) > _MAX_SHOWN else ""
    return ReadWarning(
        f"{path}:{line}: the first row ({shown}{more}) looks like a header, but is read as an entity: none of its "
        f"words is known to mean the id and the name. If it is a header, name the columns of ids and names",
        options=("id_column", "name_column"),
    )


def split_with_suspicion(path: str, report: ReadReport, *, has_ids: bool) -> Callable[[str], list[str]]:
    """A function that splits a line at tabs, and warns once if a cell is quoted as in CSV.

    That is a cell in quotes with a doubled quote in it, or the id of the first row in quotes, since what quotes all
    cells quotes that one. Names may begin and end with a quote.

    Args:
        path: For the warning.
        report: Gets the warning.
        has_ids: The first column has ids, and not names that are ids too.
    """
    is_open, is_first = True, True

    def split(line: str) -> list[str]:
        nonlocal is_open, is_first
        cells = line.split("\t")
        if is_open and '"' in line and (found := _find_quoted(line, cells, has_ids and is_first)) is not None:
            is_open = False
            report.warnings.append(
                ReadWarning(
                    f"{path}: cells look quoted as in CSV ({make_excerpt(found)}), and tab-separated text has no "
                    f"quoting, so the quotes become part of ids and names. If they are quoted, name the format csv",
                    options=("format",),
                )
            )
        is_first = False
        return cells

    return split


def _find_quoted(line: str, cells: Sequence[str], may_quote_id: bool) -> str | None:
    """The first cell that is surely quoted; None if there is none."""
    if may_quote_id and line[0] == '"' and _QUOTED_ID.match(line):
        return cells[0]
    return next((cell for cell in cells if _DOUBLED.fullmatch(cell.strip())), None) if '""' in line else None
