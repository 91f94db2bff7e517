"""DuckDB: a function of SQL that links a column of names, a vector of rows at once.

from pearl_qdrant.integrations.duckdb import register

register(connection, linker)
connection.sql("SELECT city, link(city).entity_id FROM rows")
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import Parameter, Signature

import duckdb
import pyarrow as pa

from pearl_qdrant.integrations.metadata import DEFAULT_FIELDS, ColumnLinker, Field, check_fields
from pearl_qdrant.linking.linker import EntityLinker
from pearl_qdrant.linking.options import LinkOptions


def register(
    connection: duckdb.DuckDBPyConnection,
    linker: EntityLinker,
    *,
    name: str = "link",
    fields: Sequence[Field] = DEFAULT_FIELDS,
    types: Sequence[str] = (),
    threshold: float | None = None,
    properties: Sequence[str] = (),
) -> None:
    """Add a function to a connection: names in, the entity of each as a STRUCT of `fields` (entity_id, canonical_name,
    probability, nil_reason, kb); NULL for NULL and blank names. It gets Arrow vectors of rows, and links each distinct
    value once.

    `properties` are columns of the base, of which the function takes values behind the name, as VARCHAR:
    `link(company, city)` for ["city"]. The linker must stay open while the function is used. `types`: empty for all.
    `threshold`: the linker's own by default. Raises ValueError if a field is unknown; duckdb.Error if the connection
    has a function of that name.
    """
    check_fields(fields)
    values = ColumnLinker(linker, LinkOptions(types=types, threshold=threshold), properties)
    struct = pa.struct([(one, pa.float64() if one == "probability" else pa.string()) for one in fields])

    def link(*columns: pa.ChunkedArray) -> pa.Array:
        cells, *beside = (column.to_pylist() for column in columns)
        links = values.links(cells, beside)
        found = values.columns(cells, fields, beside)
        arrays = [pa.array(found[one], struct.field(one).type) for one in fields]
        return pa.StructArray.from_arrays(arrays, fields=list(struct), mask=pa.array([one is None for one in links]))

    taken = [Parameter(f"column_{i}", Parameter.POSITIONAL_ONLY) for i in range(1 + len(properties))]
    link.__signature__ = Signature(taken)  # type: ignore[attr-defined] # DuckDB counts them
    kinds = ", ".join(f"{one} {'DOUBLE' if one == 'probability' else 'VARCHAR'}" for one in fields)
    create: Callable[..., object] = connection.create_function  # its stubs know neither types nor handlings as text
    create(
        name,
        link,
        ["VARCHAR"] * (1 + len(properties)),
        f"STRUCT({kinds})",
        type="arrow",
        null_handling="special",
        side_effects=False,
    )
