"""Bases for the fuzzer, one strategy for each reader: by grammar (TSV, OBO), or sound ones after some accidents.

Each input is a few files and the way to read them. What is repeated is repeated up to thousands of times, so that a
loop or an expression that is worse than linear shows; what is mutated stays near a sound base, so that it is read far
into. Any of it may come compressed, packed or cut.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fuzz_accidents import (
    ACCIDENTS,
    ARCHIVE,
    COUNTS,
    TEXT,
    WRAPPER,
    Strategy,
    archived,
    damage,
    damaged,
    mostly,
    repeated,
    wrap,
)
from fuzz_tables import COLUMN_OPTIONS, CSV_TABLES, DELIMITERS, JSON_TABLES, LONG_TEXT, TABLES
from hypothesis import strategies as st
from obo_terms import TOES
from rdf_bases import GRAPH, OWL, SYNTAXES
from tables import JSONL, written_tables
from umls_release import CONSO, RELEASE, definition
from wikidata_items import dump, item
from yago_files import FACTS, YAGO_4, YAGO_45, turtle

from ingest.formats import ReadOptions
from ingest.readers.rdf_profiles import profiles


@dataclass(frozen=True)
class Input:
    """Something to read.

    Attributes:
        files: By name.
        as_kind: The format to read it as, or auto.
        options: What of it.
        type_map: A table of types, or None.
        bounds: Values for some of `ingest.io.limits`.
        size: Bytes of the files, unpacked.
    """

    files: Mapping[str, bytes]
    as_kind: str
    options: ReadOptions
    type_map: bytes | None
    bounds: Mapping[str, int]
    size: int


_TERM_IDS = st.sampled_from([f"A:{i}".encode() for i in range(9)] + [b"B:1 ! why", b"", b"A\\:1", b'"A:1"'])
_QUOTED = st.builds(lambda text, end: b'"' + text + end, LONG_TEXT, st.sampled_from([b'"'] * 6 + [b"", b'\\"']))
_PAIRS = st.builds(
    lambda key, equals, value, comma: key + equals + value + comma,
    st.one_of(st.sampled_from([b"source", b"a", b"x y", b""]), TEXT),
    st.sampled_from([b"=", b" = ", b"", b"=="]),
    st.one_of(_QUOTED, TEXT, st.just(b"b")),
    st.sampled_from([b"", b",", b", ", b"  "]),
)
_MODIFIERS = st.builds(
    lambda start, pairs, end: start + pairs + end,
    st.sampled_from([b" {", b" { ", b"{", b" {{"]),
    repeated(_PAIRS, max_size=4),
    st.sampled_from([b"}"] * 5 + [b"", b'"}', b"}}"]),
)
_SCOPES = st.sampled_from([b" EXACT []", b" BROAD [A:1]", b" EXACT layperson [x, y]", b" []", b"", b" RELATED"])
_VALUES = st.one_of(
    LONG_TEXT,
    st.builds(lambda text, more: text + more, TEXT, _MODIFIERS),
    st.builds(lambda quoted, scope, more: quoted + scope + more, _QUOTED, _SCOPES, st.one_of(st.just(b""), _MODIFIERS)),
    _TERM_IDS,
    st.sampled_from([b"true", b"false", b"made_up"]),
)
_OBO_TAGS = st.sampled_from(
    b"id name namespace alt_id def synonym exact_synonym xref is_a is_a is_obsolete replaced_by comment x".split()
)
_OBO_LINES = st.one_of(
    st.builds(
        lambda tag, colon, value: tag + colon + value + b"\n", _OBO_TAGS, st.sampled_from([b": ", b":"]), _VALUES
    ),
    st.builds(lambda value: b"is_a: " + value + b"\n", _TERM_IDS),
    st.sampled_from(
        [b"[Term]\n", b"[Typedef]\n", b"[]\n", b"[Term\n", b"\n", b"! x\n", b"x\n", b"default-namespace: n\n"]
    ),
    TEXT.map(lambda text: text + b"\n"),
)
_STANZAS = st.builds(
    lambda entity_id, name, lines: b"[Term]\nid: " + entity_id + b"\nname: " + name + b"\n" + lines + b"\n",
    _TERM_IDS,
    _VALUES,
    repeated(_OBO_LINES, max_size=6),
)


def _numbered(pattern: bytes, n: int) -> bytes:
    """Copies of a stanza in which # is the number, and + the next one: chains, stars and cycles."""
    return b"".join(
        pattern.replace(b"#", b"%d" % i).replace(b"+", b"%d" % (i + 1)).replace(b"%", b"%d" % (i * 7919 % n))
        for i in range(n)
    )


_GRAPHS = st.builds(
    _numbered,
    st.lists(
        st.sampled_from([b"is_a: A:+\n", b"is_a: A:0\n", b"is_a: A:%\n", b"is_a: A:#\n", b"replaced_by: A:0\n"]),
        max_size=3,
    ).map(lambda lines: b"[Term]\nid: A:#\nname: n #\n" + b"".join(lines) + b"\n"),
    st.sampled_from([1, 2, 10, 300, 3_000]),
)
_ONTOLOGIES = st.builds(
    lambda header, parts: header + b"".join(parts),
    st.sampled_from([b"format-version: 1.2\n\n", b"", b"\xef\xbb\xbfontology: x\n", b"default-namespace: n\n", b"\n"]),
    st.lists(mostly(_STANZAS, st.one_of(repeated(_OBO_LINES, max_size=8), _GRAPHS), 2), min_size=1, max_size=5),
)

_ITEMS = [
    item(n, {"en": f"one {n}", "mul": "é"}, classes=[5], above=[n % 3 + 1], aliases={"en": ["a", "b"]})
    for n in range(1, 6)
]
DUMP = dump(*_ITEMS, {"type": "property", "id": "P31"}, item(9, {}, sitelinks={"enwiki": {"title": "x"}}))
TRUTHY = "".join(
    f'<http://www.wikidata.org/entity/Q{n}> <http://www.w3.org/2000/01/rdf-schema#label> "name \\u00e9 {n}"@en .\n'
    f'<http://www.wikidata.org/entity/Q{n}> <http://www.w3.org/2004/02/skos/core#altLabel> "other"@en .\n'
    f"<http://www.wikidata.org/entity/Q{n}> <http://www.wikidata.org/prop/direct/P31> "
    "<http://www.wikidata.org/entity/Q5> .\n"
    f"<http://www.wikidata.org/entity/Q{n}> <http://www.wikidata.org/prop/direct/P279> "
    f"<http://www.wikidata.org/entity/Q{n + 1}> .\n"
    for n in range(1, 7)
).encode()
_UMLS = RELEASE | {
    "MRDEF.RRF": (definition("C9000001", "A10", "MSH", "x") + definition("C9000001", "", "NCI", "y")).encode(),
    "MRRANK.RRF": b"0002|MADEUP|SY|N|\n0003|OTHER|PT|N|\n",
}
_YAGO = {name: text.encode() for name, text in YAGO_45.items()}
_YAGO_OLD = {name.removesuffix(".gz"): text.encode() for name, text in YAGO_4.items()}
_JSON_NESTED = st.builds(
    lambda start, count: b'{"id":"Q7","type":"item","labels":{"en":{"value":"n"}},"x":' + start * min(count, 50_000),
    st.sampled_from([b"[", b'{"a":', b'"\\u', b'{"id":', b"-", b"1", b'{"":{},']),
    COUNTS,
)
_RDF_TERMS = st.sampled_from(
    b'<u:a> <u:b> <u:c> _:x _:y <a> rdfs:label "n"@en "m" "1"^^<u:d> <http://www.wikidata.org/entity/Q5>'.split()
)
_RDF_PROPERTIES = st.sampled_from(
    [
        f"<{iri}>".encode()
        for profile in profiles().values()
        for iri in sorted(profile.properties())
    ]
)  # fmt: skip
_TRIPLES = st.lists(
    mostly(
        st.builds(
            lambda subject, name, value, end: subject + b" " + name + b" " + value + end,
            _RDF_TERMS,
            _RDF_PROPERTIES,
            st.one_of(_RDF_TERMS, TEXT.map(lambda text: b'"' + text + b'"')),
            st.sampled_from([b" .\n"] * 6 + [b"\n", b" <u:g> .\n", b" ;\n"]),
        ),
        st.sampled_from([b"junk\n", b"# x\n", b"\n", b"<< <u:a> <u:b> <u:c> >> <u:d> <u:e> .\n"]),
        5,
    ),
    min_size=1,
    max_size=60,
).map(b"".join)
_NESTED_RDF = st.builds(
    lambda start, part, count: start + part * min(count, 50_000),
    st.sampled_from(
        [
            b"<u:a> <u:b> ",
            b'<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"><rdf:Description>',
            b'<!DOCTYPE x [<!ENTITY a "bb">]><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">',
            b'{"@id":"u:a","u:b":',
            b"@prefix a: <u:> . ",
        ]
    ),
    st.sampled_from(
        [
            b"(",
            b"[ a:b ",
            b"<skos:a><rdf:Description>",
            b"&a;",
            b"<!--",
            b"[",
            b'{"u:b":',
            b'"',
            b"a:b a:c a:d . ",
            b"@prefix b: <c:> . ",
        ]
    ),
    COUNTS,
)
_TYPE_MAPS = mostly(
    st.none(), st.builds(damage, st.just(b"# version: 9\nzorgon\tORG\nPER\tPERSON\nx\t\n"), ACCIDENTS), 9
)
_BOUNDS = st.sampled_from(
    [
        *[{}] * 6,
        {"MAX_NAMES": 3, "MAX_KB_TYPES": 2, "MAX_ANCESTORS": 2},
        {"MAX_ROWS": 4},
        {"MAX_ROWS": 5, "MAX_ENTITY_BYTES": 300, "MAX_NAMES": 4, "MAX_ITEM_BYTES": 500},
    ]
)
_LANGUAGES = st.sampled_from([(), (), ("en",), ("fr", "en"), ("fi",)])
_LIMITS = st.sampled_from([None, None, None, 1, 3])


def _alone(
    kind: str, names: Sequence[str], content: Strategy[bytes], options: Strategy[ReadOptions]
) -> Strategy[Input]:
    """A base in one file, perhaps compressed."""
    return st.builds(
        lambda name, data, wrapper, as_kind, chosen, types, bounds: Input(
            {name: wrap(data, wrapper)}, as_kind, chosen if as_kind == kind else ReadOptions(), types, bounds, len(data)
        ),
        st.sampled_from(names),
        content,
        WRAPPER,
        st.sampled_from([kind, kind, kind, "auto"]),
        options,
        _TYPE_MAPS,
        _BOUNDS,
    )


def _several(kind: str, files: Strategy[dict[str, bytes]], options: Strategy[ReadOptions]) -> Strategy[Input]:
    """A base in several files, perhaps compressed, perhaps in an archive."""
    return st.builds(
        lambda found, wrapper, archive, as_kind, chosen, types, bounds: Input(
            archived({name: wrap(content, wrapper) for name, content in found.items()}, archive),
            as_kind,
            chosen if as_kind == kind else ReadOptions(),
            types,
            bounds,
            sum(map(len, found.values())),
        ),
        files,
        WRAPPER,
        ARCHIVE,
        st.sampled_from([kind, kind, kind, "auto"]),
        options,
        _TYPE_MAPS,
        _BOUNDS,
    )


_OBO_OPTIONS = st.builds(
    ReadOptions, limit=_LIMITS, scopes=st.sampled_from([(), ("BROAD", "RELATED")]), links=st.booleans()
)
_RDF_OPTIONS = st.builds(
    ReadOptions,
    limit=_LIMITS,
    languages=st.one_of(_LANGUAGES, st.just(("all",))),
    scopes=st.sampled_from([(), ("BROAD", "RELATED")]),
    classes=st.sampled_from([(), (), (), ("Q5",), ("City",)]),
    links=st.booleans(),
    label_properties=st.sampled_from([(), (), ("skos:altLabel",)]),
)
_WIKIDATA_OPTIONS = st.builds(
    ReadOptions,
    limit=_LIMITS,
    languages=_LANGUAGES,
    classes=st.sampled_from([(), (), ("Q5",)]),
    require_sitelink=st.booleans(),
    links=st.booleans(),
)
_UMLS_OPTIONS = st.builds(
    ReadOptions,
    limit=_LIMITS,
    languages=_LANGUAGES,
    sabs=st.sampled_from([(), (), ("OTHER",)]),
    semantic_types=st.sampled_from([(), (), (), (), ("DISO",)]),
)

INPUTS: dict[str, Strategy[Input]] = {
    "tsv": _alone("tsv", ["base.tsv", "x"], TABLES, st.builds(ReadOptions, limit=_LIMITS, columns=COLUMN_OPTIONS)),
    "csv": _alone(
        "csv",
        ["base.csv", "x"],
        CSV_TABLES,
        st.builds(ReadOptions, limit=_LIMITS, columns=COLUMN_OPTIONS, delimiter=DELIMITERS),
    ),
    "jsonl": st.one_of(
        _alone("jsonl", ["x"], JSON_TABLES, st.builds(ReadOptions, limit=_LIMITS, columns=COLUMN_OPTIONS)),
        _alone(
            "jsonl",
            ["x"],
            st.builds(lambda nested: JSONL.encode() + nested, _JSON_NESTED),
            st.builds(ReadOptions, limit=_LIMITS),
        ),
    ),
    "parquet": st.one_of(
        *(
            _alone(
                "parquet",
                ["x"],
                st.builds(damage, st.just(content), ACCIDENTS),
                st.builds(ReadOptions, limit=_LIMITS, columns=COLUMN_OPTIONS),
            )
            for content in written_tables().values()
        )
    ),
    "obo": st.one_of(
        _alone("obo", ["base.obo"], _ONTOLOGIES, _OBO_OPTIONS),
        _alone("obo", ["base.obo"], st.builds(damage, st.just(TOES.encode()), ACCIDENTS), _OBO_OPTIONS),
    ),
    "umls": st.one_of(
        _several("umls", damaged(_UMLS), _UMLS_OPTIONS),
        _alone("umls", ["MRCONSO.RRF"], st.builds(damage, st.just(CONSO.encode()), ACCIDENTS), _UMLS_OPTIONS),
    ),
    "yago": st.one_of(
        _several("rdf", damaged(_YAGO), _RDF_OPTIONS),
        _several("rdf", damaged(_YAGO_OLD), _RDF_OPTIONS),
        _alone("rdf", ["yago-facts.ttl"], st.builds(damage, st.just(turtle(FACTS).encode()), ACCIDENTS), _RDF_OPTIONS),
    ),
    "truthy": _alone("rdf", ["truthy.nt"], st.builds(damage, st.just(TRUTHY), ACCIDENTS), _RDF_OPTIONS),
    "rdf": st.one_of(
        *(
            _alone("rdf", ["base", "x.ttl"], st.builds(damage, st.just(text.encode()), ACCIDENTS), _RDF_OPTIONS)
            for text in (*SYNTAXES.values(), OWL)
        ),
        _alone("rdf", ["x.nt"], _TRIPLES, _RDF_OPTIONS),
        _alone("rdf", ["x"], _NESTED_RDF, _RDF_OPTIONS),
    ),
    "obograph": _alone("obograph", ["x.json"], st.builds(damage, st.just(GRAPH.encode()), ACCIDENTS), _OBO_OPTIONS),
    "wikidata": st.one_of(
        _alone("wikidata", ["dump.json"], st.builds(damage, st.just(DUMP), ACCIDENTS), _WIKIDATA_OPTIONS),
        _alone(
            "wikidata",
            ["x"],
            st.builds(lambda nested: b"[\n" + json.dumps(_ITEMS[0]).encode() + b",\n" + nested, _JSON_NESTED),
            _WIKIDATA_OPTIONS,
        ),
    ),
}
"""The inputs of each reader."""
