"""What may be meant otherwise than it is read, by the first rows of a table: warnings with the option to look at."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter

from ingest.io.report import ReadWarning, make_excerpt
from ingest.readers.columns import (
    HALF,
    LEAST_ROWS,
    Layout,
    Table,
    column_of,
    different,
    holds_kinds_of_names,
    is_half_digits,
)
from ingest.readers.headers import columns_of, part_columns

_LEAST_TYPES = 20
_APART = 1.2  # runs of rows, and names, for each id
_JOINED = re.compile(r";\s|\|")
_ID_LIKE = re.compile(
    r"<?https?://\S+|urn:\S+|[A-Za-z]{1,12}[:_]?\d{2,}|\d{3,}|[\da-f]{8}-(?:[\da-f]{4}-){3}[\da-f]{12}|\d+/[a-z]+|"
    r"[A-Za-z][\w.-]*:[A-Z]{0,4}\d{2,}"
)
_CODE = re.compile(r"[A-Z]{2,4}|[a-z]{2,3}")
_PHRASE = re.compile(r"[^\W\d_] [^\W\d_]")
_MOJIBAKE = re.compile(r"[ÃÂâ][\x80-\xbf‚-™]|&(?:amp|quot|#\d+|lt|gt|eacute);")
_IN_QUOTES = re.compile(r"\"[^\"]+\"|'[^']+'(?:@\w+)?|“[^”]+”")


def find_suspicions(table: Table, layout: Layout) -> Iterator[ReadWarning]:
    """Warnings for a table, from its first rows."""
    path, rows = table.path, table.sample
    yield from _of_names(table, layout, column_of(rows, layout.name))
    if layout.is_open and layout.id != layout.name:
        yield from _find_other_rows(table, layout)
    columns = [("name_column", layout.name), *(("alias_column", i) for i in layout.aliases), ("id_column", layout.id)]
    for option, i in columns:
        cells = column_of(rows, i)
        if len(cells) >= 2 and len(set(cells)) == 1 and (len(cells[0]) == 1 or not any(map(str.isalnum, cells[0]))):
            message = f"{path}: column {i + 1} is '{make_excerpt(cells[0])}' in all of the first rows"
            yield ReadWarning(f"{message}. Name another column", options=(option,))
        what = "ids" if option == "id_column" else "names"
        quoted = [cell for cell in cells if _IN_QUOTES.fullmatch(cell)]
        if len(quoted) > max(2, 0.2 * len(cells)):
            message = f"{path}: cells are in quotes ({make_excerpt(quoted[0])}), which become part of the {what}. "
            if table.is_unquoted:
                yield ReadWarning(f"{message}If the file is quoted as CSV is, name the format csv", options=("format",))
            else:
                yield ReadWarning(f"{message}Take them away if the {what} have none", options=(option,))
            break
    for i in layout.aliases:
        cells = column_of(rows, i)
        lists = [cell for cell in cells if ", " in cell or " / " in cell]
        if layout.separators.get(i, "|") == "|" and len(cells) >= LEAST_ROWS and len(lists) > 0.5 * len(cells):
            message = f"{path}: cells of column {i + 1} are read as one alias each ({make_excerpt(lists[0])}). If they "
            yield ReadWarning(f"{message}are lists, name the separator", options=("list_separators",))
    for i in layout.types:
        cells = column_of(rows, i)
        if len(cells) >= _LEAST_TYPES and len(set(cells)) == len(rows):
            message = f"{path}: column {i + 1}, taken for types, has another value in each row"
            yield ReadWarning(f"{message} ({make_excerpt(cells[0])}, ...). Name the types", options=("type_column",))


def _of_names(table: Table, layout: Layout, names: Sequence[str]) -> Iterator[ReadWarning]:
    """Warnings for what stands in the column of names."""
    path = table.path
    if layout.id != layout.name and len(names) >= LEAST_ROWS:
        are_codes = not table.header and len(set(map(len, names))) == 1 and all(map(_CODE.fullmatch, names))
        odd = [name for name in names if are_codes or _ID_LIKE.fullmatch(name) or is_half_digits(name)]
        if len(odd) >= 0.8 * len(names):
            message = (
                f"{path}: the names look like ids or addresses ({make_excerpt(odd[0])}). Is another column the name?"
            )
            yield ReadWarning(message, options=("name_column",))
    if odd := [name for name in names if _MOJIBAKE.search(name)]:
        message = f"{path}: names look as if their text was converted wrongly before ({make_excerpt(odd[0])})"
        yield ReadWarning(message)
    joined = [name for name in names if _JOINED.search(name) and not _MOJIBAKE.search(name)]
    if layout.name not in layout.separators and len(joined) > 0.5 * len(names) >= 0.5 * LEAST_ROWS:
        column = table.header[layout.name] if table.header else layout.name + 1
        message = (
            f"{path}: names look like lists ({make_excerpt(joined[0])}). If they are, name the separator of column"
        )
        yield ReadWarning(f"{message} '{column}'", options=("list_separators",))
    parts = part_columns(table.header or []).values()
    if len(parts) > 1 and layout.name not in parts and names:
        rows = [row for row in table.sample if len(row) >= max(layout.width, 1 + max(parts))]
        pairs = [(str(row[layout.name]).casefold(), [str(row[i]).casefold() for i in parts if row[i]]) for row in rows]
        persons = [(name, some) for name, some in pairs if some]
        if sum(not any(part in name for part in some) for name, some in persons) > max(1, HALF * len(persons)):
            message = f"{path}: the names have no part of those of persons in other columns ({make_excerpt(names[0])})"
            yield ReadWarning(f"{message}. Is another column the name?", options=("name_column",))
    if table.has_comments and sum(" # " in name for name in names) > 0.5 * len(names):
        message = f"{path}: names have a comment behind '#' ({make_excerpt(names[0])}). Take it away"
        yield ReadWarning(message, options=("name_column",))


def _find_other_rows(table: Table, layout: Layout) -> Iterator[ReadWarning]:
    """Warnings where ids or names repeat so often that the rows are of something else, perhaps."""
    header, rows = table.header or [], table.sample
    ids, names = different(table, layout.id), different(table, layout.name)
    if names < HALF * ids and not header:
        message = f"{table.path}: many ids have the same name by column {layout.name + 1}. Is another column the name?"
        yield ReadWarning(message, options=("name_column",))
    rest = [i for i in range(layout.n_columns) if i not in layout.used() and different(table, i) > HALF]
    if not header and ids < HALF * names and any(len(column_of(rows, i)) == len(rows) >= LEAST_ROWS for i in rest):
        message = f"{table.path}: the ids of column {layout.id + 1} repeat, and column {rest[0] + 1} is not used"
        yield ReadWarning(f"{message}. Are the rows of something else?", options=("id_column", "name_column"))
    phrases = [cell for cell in column_of(rows, layout.id) if _PHRASE.search(cell)]
    if not header and len(phrases) > max(LEAST_ROWS, HALF * len(rows)):
        message = f"{table.path}: the ids of column {layout.id + 1} look like names ({make_excerpt(phrases[0])})"
        yield ReadWarning(f"{message}. Is another column the id?", options=("id_column", "name_column"))
    if any(holds_kinds_of_names(table, i) for i in range(len(header))):
        return
    pairs = [(str(row[layout.id]), str(row[layout.name])) for row in rows if len(row) >= layout.width]
    n_ids, n_runs, n_pairs = len({id_ for id_, _ in pairs}), len(list(groupby(pairs, itemgetter(0)))), len(set(pairs))
    column = f"'{header[layout.id]}'" if header else str(layout.id + 1)
    others = [i for i in range(len(header)) if i not in (layout.id, layout.name)] if ids <= HALF else []
    if n_pairs != n_ids:
        others = [i for i in columns_of(header, "id") if i in others]
    other = next((i for i in others if len(column_of(rows, i)) == len(rows) and different(table, i) == 1.0), None)
    if other is not None:
        message = f"{table.path}: the ids of column {column} repeat, and each row has its own value in column"
        yield ReadWarning(f"{message} '{header[other]}'. Are the rows of something else?", options=("id_column",))
    elif len(pairs) > _LEAST_TYPES and min(n_runs, n_pairs) > _APART * n_ids:
        message = f"{table.path}: the ids of column {column} repeat in rows apart, with other names. If these are names"
        yield ReadWarning(f"{message} of other entities, name another column", options=("id_column",))
