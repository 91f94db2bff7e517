"""polars: the entities of a column, lazily and batch by batch, too; and a join of tables on keys that mean the same.

from pearl_qdrant.integrations.polars import fuzzy_join, link_column

frame = link_column(pl.scan_parquet("rows.parquet"), "city", linker=linker).collect()
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

import polars as pl

from pearl_qdrant.integrations import joining, metadata
from pearl_qdrant.linking.linker import EntityLinker
from pearl_qdrant.linking.options import LinkKeywords, LinkOptions
from pearl_qdrant.linking.tables import ROWS

if TYPE_CHECKING:
    from typing_extensions import Unpack

Frame = TypeVar("Frame", pl.DataFrame, pl.LazyFrame)

BATCH_ROWS = 65_536  # Rows of a table that are linked at once; memory is that of their links


def link_column(
    frame: Frame,
    column: str | None = None,
    *,
    linker: EntityLinker,
    fields: Sequence[metadata.Field] = metadata.DEFAULT_FIELDS,
    prefix: str | None = None,
    properties: Mapping[str, str] | None = None,
    **keywords: Unpack[LinkKeywords],
) -> Frame:
    """A table with the entities of a column beside it; arguments as of `pandas.link_column`. A lazy table stays lazy:
    its batches are linked as they are read, by the streaming engine, too, and the linker must be open then.

    Raises OptionError if a column is missing, or a new one is there already.
    """
    schema: pl.Schema = frame.collect_schema()
    options = LinkOptions(**keywords)
    if column is None:
        first = frame.lazy().head(ROWS).collect()
        column, options = metadata.name_column(linker, first.to_dict(as_series=False), options)
    metadata.find_column(column, schema.names())
    names = metadata.new_names(column, fields, schema.names(), prefix)
    kinds = {
        name: pl.Float64() if field == "probability" else pl.String() for name, field in zip(names, fields, strict=True)
    }
    others: Mapping[str, str] = properties or {}
    used: list[str] = [column]
    used += [metadata.find_column(one, schema.names(), option="properties") for one in others.values()]
    values = metadata.ColumnLinker(linker, options, list(others))

    def add(batch: pl.DataFrame) -> pl.DataFrame:
        parts = [_linked(part, used, values, fields, kinds) for part in batch.iter_slices(BATCH_ROWS)]
        return pl.concat(parts) if parts else _linked(batch, used, values, fields, kinds)

    if isinstance(frame, pl.LazyFrame):
        return frame.map_batches(add, schema=pl.Schema({**schema, **kinds}), streamable=True)
    return add(frame)


def _linked(
    batch: pl.DataFrame,
    used: Sequence[str],
    values: metadata.ColumnLinker,
    fields: Sequence[metadata.Field],
    kinds: dict[str, pl.Float64 | pl.String],
) -> pl.DataFrame:
    cells, *beside = (batch.get_column(one).to_list() for one in used)
    found = values.columns(cells, fields, beside)
    added = [
        pl.Series(name, found[field], dtype=kind, strict=False)
        for (name, kind), field in zip(kinds.items(), fields, strict=True)
    ]
    return batch.with_columns(added)


def fuzzy_join(
    left: pl.DataFrame, right: pl.DataFrame, *, suffix: str = "_right", **keywords: Unpack[joining.JoinKeywords]
) -> pl.DataFrame:
    """Join two tables on keys that mean the same, whatever their spelling; arguments as of `pandas.fuzzy_join`. Raises
    OptionError if a column is missing; ValueError if the columns are not named.
    """
    options = joining.JoinOptions(**keywords)
    ours, theirs = options.columns(left.columns, right.columns)
    our_cells = [left.get_column(one).to_list() for one in ours]
    found = joining.match_rows(our_cells, [right.get_column(one).to_list() for one in theirs], options)
    keyed = left.with_columns(
        pl.Series(_KEY, found.left, dtype=pl.Int64), pl.Series(joining.MATCH, found.probabilities, dtype=pl.Float64)
    )
    known = right.with_columns(pl.Series(_KEY, found.right, dtype=pl.Int64))
    return keyed.join(known, on=_KEY, how=options.how, suffix=suffix, maintain_order="left_right").drop(_KEY)


_KEY = "__pearl_key"
