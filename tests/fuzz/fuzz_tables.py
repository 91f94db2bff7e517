"""Tables for the fuzzer: TSV, CSV and JSON Lines by grammar, and options for their columns."""

from __future__ import annotations

import json

from fuzz_accidents import CRUMBS, TEXT, mostly, repeated
from hypothesis import strategies as st

from ingest.base.format import TableColumns

LONG_TEXT = mostly(TEXT, repeated(CRUMBS, max_size=3))


_HEADERS = st.sampled_from(
    [*"id entity_id CUI QID canonical_name name Name type types aliases alias description kb score x x".split(), ""]
).map(str.encode)
_IDS = st.sampled_from([b"Q1", b"Q1", b"Q2", b"Q3", b" Q1 ", b"", b"\xc3\xa9"])
_CELLS = st.one_of(LONG_TEXT, st.sampled_from([b"PER", b"LOC|CITY", b"a|b|c", b"|", b"\\"]))
_ROW_ENDS = st.sampled_from([b"\n"] * 8 + [b"\r\n", b"\t\n", b"\r", b"\n\n"])


def _row(entity_id: bytes, cells: list[bytes], end: bytes) -> bytes:
    return b"\t".join([entity_id, *cells]) + end


_ROWS = st.builds(_row, st.one_of(_IDS, TEXT), st.lists(_CELLS, min_size=0, max_size=6), _ROW_ENDS)
TABLES = st.builds(
    lambda mark, header, rows: mark + header + rows,
    st.sampled_from([b"", b"", b"", b"\xef\xbb\xbf", b"\n\n"]),
    st.one_of(
        st.just(b"Q9\tname\tPER\ta|b\n"),
        st.lists(_HEADERS, min_size=1, max_size=8).map(lambda cells: b"\t".join([b"id", b"name", *cells]) + b"\n"),
        st.just(b"id\tname\ttype\taliases\tdescription\tx\n"),
    ),
    repeated(mostly(_ROWS, st.one_of(TEXT, st.sampled_from([b"Q1\tname\n", b"\n", b"\t"])), 6), min_size=3),
)
_COLUMN = st.one_of(st.none(), st.sampled_from(["1", "2", "9", "0", "id", "x", "99999"]))
COLUMN_OPTIONS = mostly(
    st.none(),
    st.builds(
        lambda i, name, types, alias: TableColumns(i, name, tuple(types), alias),
        _COLUMN,
        _COLUMN,
        st.lists(st.sampled_from(["1", "3", "type"]), max_size=2),
        _COLUMN,
    ),
    9,
)

_CSV_CELLS = st.one_of(
    _CELLS,
    st.builds(lambda text, end: b'"' + text.replace(b'"', b'""') + end, LONG_TEXT, st.sampled_from([b'"'] * 6 + [b""])),
    st.sampled_from([b'"', b'""', b'"a\nb"', b'a"b', b'"a"b']),
)
_CSV_ROWS = st.builds(
    lambda entity_id, cells, end, mark: mark.join([entity_id, *cells]) + end,
    st.one_of(_IDS, TEXT),
    st.lists(_CSV_CELLS, max_size=6),
    _ROW_ENDS,
    st.sampled_from([b","] * 9 + [b";"]),
)
CSV_TABLES = st.builds(
    lambda mark, header, rows: mark + header + rows,
    st.sampled_from([b"", b"", b"", b"\xef\xbb\xbf", b"\n\n"]),
    st.sampled_from([b"id,name,type,aliases,description,x\n", b'"id","name"\n', b"id;name;type\n", b"Q9,name,PER\n"]),
    repeated(
        mostly(_CSV_ROWS, st.one_of(TEXT, st.sampled_from([b"Q1,name\n", b'x","\n', b'"\n', b","])), 6), min_size=3
    ),
)
DELIMITERS = st.sampled_from([None, None, None, ",", ";", "tab"])

_JSON_VALUES = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.text(max_size=8), st.sampled_from(["PER|LOC", "a\nb", "\0", "x"])
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=3), inner, max_size=3)),
    max_leaves=6,
)
_JSON_KEYS = st.sampled_from("id id name name canonical_name aliases type types description x y ID".split())
_JSON_ROWS = st.builds(
    lambda row, i: json.dumps({"id": i, "name": "n"} | row).encode() + b"\n",
    st.dictionaries(_JSON_KEYS, _JSON_VALUES, max_size=5),
    st.integers(0, 5),
)
JSON_TABLES = st.builds(
    lambda mark, rows: mark + b'{"id": 9, "name": "n"}\n' + rows,
    st.sampled_from([b"", b"", b"\xef\xbb\xbf", b"\n"]),
    repeated(
        mostly(_JSON_ROWS, st.one_of(TEXT, st.sampled_from([b"{}\n", b"\n", b'{"id":1,"name":"'])), 6), min_size=3
    ),
)
