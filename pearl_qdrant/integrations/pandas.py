"""pandas: the entities of a column, and a join of tables whose keys are written differently.

    from pearl_qdrant.integrations.pandas import fuzzy_join, link_column

    frame = link_column(frame, "city", linker=linker)
    both = fuzzy_join(orders, customers, left_on="customer", right_on="name")

Index, order and other columns stay; null cells stay null.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pandas as pd

from pearl_qdrant.integrations import joining, metadata
from pearl_qdrant.linking.linker import EntityLinker
from pearl_qdrant.linking.options import LinkKeywords, LinkOptions
from pearl_qdrant.linking.tables import ROWS

if TYPE_CHECKING:
    from typing_extensions import Unpack


def link_column(
    frame: pd.DataFrame,
    column: str | None = None,
    *,
    linker: EntityLinker,
    fields: Sequence[metadata.Field] = metadata.DEFAULT_FIELDS,
    prefix: str | None = None,
    properties: Mapping[str, str] | None = None,
    **keywords: Unpack[LinkKeywords],
) -> pd.DataFrame:
    """A copy of a table with the entities of a column beside it; each distinct value is linked once.

    Args:
        column: The column with the names. By default the one with the most names of the base; which, of which type most
            are, and how many are in the base, is logged first, and entities of that type are preferred.
        fields: What is added: entity_id, canonical_name, probability, nil_reason, kb.
        prefix: Put before the names of the new columns; default is the column's name and `_`.
        properties: Other columns that say which entity is meant, by the column of the base: {"city": "City"}.
        keywords: Fields of `LinkOptions`, such as types, threshold and judge.

    Raises OptionError if a column is missing or there twice, or a new one is there already.
    """
    options = LinkOptions(**keywords)
    if column is None:
        table = {
            str(one): frame[one].head(ROWS).tolist() for one in frame.columns if list(frame.columns).count(one) == 1
        }
        column, options = metadata.name_column(linker, table, options)
    label = metadata.find_column(column, frame.columns)
    names = metadata.new_names(column, fields, frame.columns, prefix)
    others = properties or {}
    values, cells = metadata.ColumnLinker(linker, options, list(others)), frame[label].tolist()
    beside = [frame[metadata.find_column(one, frame.columns, option="properties")].tolist() for one in others.values()]
    found = values.columns(cells, fields, beside)
    added = {
        name: pd.Series(found[field], index=frame.index, dtype="float64" if field == "probability" else "object")
        for name, field in zip(names, fields, strict=True)
    }
    return frame.assign(**added)


def fuzzy_join(
    left: pd.DataFrame,
    right: pd.DataFrame,
    *,
    suffixes: tuple[str, str] = ("", "_right"),
    **keywords: Unpack[joining.JoinKeywords],
) -> pd.DataFrame:
    """Join two tables on keys that mean the same, whatever their spelling; with the probability of each match.

    A row of the left table gets all rows of the right one with the matched key, and its index. The keywords are the
    fields of `joining.JoinOptions`: `on`, or `left_on` and `right_on`; `properties`; `one_to_one`; `how`; `threshold`;
    `model`; `device`. Raises OptionError if a column is missing or there twice; ValueError if the columns are not
    named.
    """
    options = joining.JoinOptions(**keywords)
    ours, theirs = options.columns(left.columns, right.columns)
    found = joining.match_rows([left[one].tolist() for one in ours], [right[one].tolist() for one in theirs], options)
    index = pd.Index(range(len(left)), name=_ROW)
    keyed = left.set_axis(index).assign(
        **{
            _KEY: pd.Series(found.left, index=index, dtype="object"),
            joining.MATCH: pd.Series(found.probabilities, index=index, dtype="float64"),
        }
    )
    known = right.assign(**{_KEY: pd.Series(found.right, index=right.index, dtype="object")})
    known = known[known[_KEY].notna()]
    joined = keyed.reset_index().merge(known, on=_KEY, how=options.how, suffixes=suffixes)
    rows = joined[_ROW].to_numpy()
    return joined.drop(columns=[_KEY, _ROW]).set_axis(left.index.take(rows), axis=0)


_KEY, _ROW = "__pearl_key", "__pearl_row"
