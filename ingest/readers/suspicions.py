"""What a table looks like but is not read as: said as warnings, from its first rows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from ingest.io.report import ReadWarning, make_excerpt
from ingest.readers.columns import Layout
from ingest.readers.open_table import Table

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
_MAX_SHOWN = 8  # cells in a warning
_LEAST_ROWS = 5
_LEAST_TYPES = 20
_ID_LIKE = re.compile(r"https?://\S+|urn:\S+|[A-Za-z]{1,12}[:_]?\d{2,}|\d{3,}")
_MOJIBAKE = re.compile(r"[ÃÂâ][\x80-\xbf‚-™]|&(?:amp|quot|#\d+|lt|gt|eacute);")
_IN_QUOTES = re.compile(r"\"[^\"]+\"|'[^']+'(?:@\w+)?")


def find_suspicions(table: Table, layout: Layout, *, is_guessed: bool) -> Iterator[ReadWarning]:
    """Warnings for a table, from its first rows; `is_guessed` if no option names a column."""
    path, rows = table.path, table.sample
    if layout.header is None and is_guessed and rows and looks_like_header(rows[0], rows[1:]):
        yield _header_warning(path, table.header_line or 1, rows[0])
    names = _column(rows, layout.name)
    if layout.id != layout.name and len(names) >= _LEAST_ROWS:
        odd = [name for name in names if _ID_LIKE.fullmatch(name)]
        if len(odd) >= 0.8 * len(names):
            message = (
                f"{path}: the names look like ids or addresses ({make_excerpt(odd[0])}). Is another column the name?"
            )
            yield ReadWarning(message, options=("name_column",))
    if odd := [name for name in names if _MOJIBAKE.search(name)]:
        message = f"{path}: names look as if their text was converted wrongly before ({make_excerpt(odd[0])})"
        yield ReadWarning(message)
    for option, i in (("name_column", layout.name), *(("alias_column", i) for i in layout.aliases)):
        cells = _column(rows, i)
        if len(cells) >= 2 and len(set(cells)) == 1 and (len(cells[0]) == 1 or not any(map(str.isalnum, cells[0]))):
            message = f"{path}: column {i + 1} is '{make_excerpt(cells[0])}' in all of the first rows"
            yield ReadWarning(f"{message}. Name another column", options=(option,))
        quoted = [cell for cell in cells if _IN_QUOTES.fullmatch(cell)]
        if table.is_unquoted and len(quoted) > max(2, 0.2 * len(cells)):
            message = (
                f"{path}: cells are in quotes ({make_excerpt(quoted[0])}), which become part of the names. If the "
            )
            yield ReadWarning(f"{message}file is quoted as CSV is, name the format csv", options=("format",))
            break
    for i in layout.aliases:
        cells = _column(rows, i)
        lists = [cell for cell in cells if ", " in cell or " / " in cell]
        if layout.separators.get(i, "|") == "|" and len(cells) >= _LEAST_ROWS and len(lists) > 0.5 * len(cells):
            message = f"{path}: cells of column {i + 1} are read as one alias each ({make_excerpt(lists[0])}). If they "
            yield ReadWarning(f"{message}are lists, name the separator", options=("list_separators",))
    for i in layout.types:
        cells = _column(rows, i)
        if len(cells) >= _LEAST_TYPES and len(set(cells)) == len(rows):
            message = f"{path}: column {i + 1}, taken for types, has another value in each row"
            yield ReadWarning(f"{message} ({make_excerpt(cells[0])}, ...). Name the types", options=("type_column",))


def _column(rows: Sequence[Sequence[Any]], i: int) -> list[str]:
    """The texts in a column that are not blank."""
    return [text for row in rows if i < len(row) and isinstance(row[i], str) and (text := row[i].strip())]


def looks_like_header(first: Sequence[Any], others: Sequence[Sequence[Any]]) -> bool:
    """Whether the first row of a table is a header, although its words are not known.

    Args:
        first: The cells of the first row.
        others: The cells of some rows after it.

    Returns:
        Whether all its cells are different words, the first one without a digit, and either two of them are
        `HEADER_WORDS`, or the ids of all the other rows have digits.
    """
    cells = [str(cell).strip() for cell in first]
    is_words = all(map(_WORD.fullmatch, cells)) and len(set(cells)) == len(cells)
    if len(cells) < 2 or not is_words or _DIGIT.search(cells[0]):
        return False
    if sum(cell.casefold().replace(" ", "_") in HEADER_WORDS for cell in cells) >= 2:
        return True
    has_digit = [bool(row and _DIGIT.search(str(row[0]))) for row in others]
    return len(has_digit) >= _N_OTHERS and all(has_digit)


def _header_warning(path: str, line: int, first: Sequence[Any]) -> ReadWarning:
    shown = ", ".join(make_excerpt(str(cell).strip()) for cell in first[:_MAX_SHOWN])
    more = ", ..." if len(first) > _MAX_SHOWN else ""
    return ReadWarning(
        f"{path}:{line}: the first row ({shown}{more}) looks like a header, but is read as an entity: none of its "
        f"words is known to mean the id and the name. If it is a header, name the columns of ids and names",
        options=("id_column", "name_column"),
    )
