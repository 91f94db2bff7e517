"""The options of every table: which column is what.

A new option needs a field in `TableColumns` too, and its use in `columns.py`.
"""

from __future__ import annotations

from ingest.base.format import FormatOption

COLUMN_OPTIONS = (
    FormatOption("--id-column", "columns.id", "name or number of the column of ids.", "C"),
    FormatOption("--name-column", "columns.name", "name or number of the column of names.", "C"),
    FormatOption("--type-column", "columns.types", "name or number of a column of types; may be repeated.", "C", True),
    FormatOption("--alias-column", "columns.alias", "name or number of the column of aliases.", "C"),
    FormatOption(
        "--popularity-column", "columns.popularity", "name or number of a column of numbers: how well known it is.", "C"
    ),
)
