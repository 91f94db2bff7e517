"""Damage of every kind to a small file of every format: entities and counted skips, or an error that names the file."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from effort import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rdf_bases import OWL, SYNTAXES, TOES, graph
from tables import CSV, JSONL, written_tables
from umls_release import CONSO
from wikidata_items import item
from yago_files import FACTS, n_triples, turtle

from ingest.base.reader import scan
from ingest.base.type_map import TypeMap
from ingest.formats import FORMAT_NAMES, open_reader
from ingest.io.report import ReadReport
from pearl_qdrant.errors import PearlQdrantError

_ITEMS = [item(n, {"en": f"one {n}", "mul": "é"}, classes=[5], above=[n % 3 + 1]) for n in range(1, 5)]
_TRUTHY = "".join(
    f'<http://www.wikidata.org/entity/Q{n}> <http://www.w3.org/2000/01/rdf-schema#label> "name \\u00e9 {n}"@en .\n'
    f"<http://www.wikidata.org/entity/Q{n}> <http://www.wikidata.org/prop/direct/P31> "
    "<http://www.wikidata.org/entity/Q5> .\n"
    for n in range(1, 7)
)
# By the name of the file: its format and what is in it.
_TEXTS = {
    "base.tsv": ("tsv", "id\tname\ttype\taliases\n" + "".join(f"{n}\tname é {n}\tPER\ta|b\\|c\n" for n in range(9))),
    "base.csv": ("csv", CSV),
    "base.jsonl": ("jsonl", JSONL),
    "MRCONSO.RRF": ("umls", CONSO),
    "yago-facts.ttl": ("rdf", turtle(FACTS)),
    "yago-wd-labels.nt": ("rdf", n_triples(FACTS)),
    "made.owl": ("rdf", OWL),
    "toys.trig": ("rdf", SYNTAXES["TriG"]),
    "toys.jsonld": ("rdf", SYNTAXES["JSON-LD"]),
    "toes.json": ("obograph", json.dumps(json.loads(graph()), indent=1)),
    "dump.json": ("wikidata", "[\n" + ",\n".join(map(json.dumps, _ITEMS)) + "\n]\n"),
    "truthy.nt": ("rdf", _TRUTHY),
    "toes.obo": ("obo", TOES),
}
BASES = {name: (kind, text.encode()) for name, (kind, text) in _TEXTS.items()} | {
    f"{form}.parquet": ("parquet", content) for form, content in written_tables().items()
}
_CRUMBS = st.sampled_from(
    [b"\0", b"\xff", b"\xed\xa0\x80", b"\n", b"\r", b"\t", b"|", b'"', b"\\", b"\\u", b"{", b"<", b"."]
)


@pytest.fixture(scope="module")
def type_map() -> TypeMap:
    """The shipped one, loaded once."""
    return TypeMap.load()


def damage(content: bytes, data: st.DataObject) -> bytes:
    """The content after some accidents."""
    for accident in data.draw(st.lists(st.sampled_from(["cut", "flip", "insert", "copy", "drop", "swap"]), max_size=4)):
        place = data.draw(st.integers(0, len(content)))
        lines = content.splitlines(keepends=True) or [b""]
        line, other = (data.draw(st.integers(0, len(lines) - 1)) for _ in range(2))
        if accident == "cut":
            content = content[:place]
        elif accident == "flip":
            content = (
                content[:place] + bytes(b ^ 1 << place % 8 for b in content[place : place + 1]) + content[place + 1 :]
            )
        elif accident == "insert":
            content = content[:place] + data.draw(_CRUMBS) + content[place:]
        else:
            if accident == "copy":
                lines.insert(other, lines[line])
            elif accident == "drop":
                del lines[line]
            else:
                lines[line], lines[other] = lines[other], lines[line]
            content = b"".join(lines)
    return content


@pytest.mark.parametrize("name", BASES)
@given(data=st.data())
@settings(
    max_examples=examples(80),
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_no_damage_gives_anything_but_entities_skips_or_an_error_with_the_path(
    tmp_path: Path, type_map: TypeMap, name: str, data: st.DataObject
) -> None:
    """Reading a damaged file ends soon, and the error names the file."""
    kind, sound = BASES[name]
    content = damage(sound, data)
    if data.draw(st.booleans()):
        content = damage(gzip.compress(content, mtime=0), data) if data.draw(st.booleans()) else gzip.compress(content)
    path = tmp_path / name
    path.write_bytes(content)
    report = ReadReport(max_errors=None)

    form = data.draw(st.sampled_from(["auto", kind]))

    try:
        with open_reader([path], form, type_map=type_map) as reader:
            entities = list(reader.read(report))
    except PearlQdrantError as error:
        message = str(error)
    else:
        message = ""
    if message:
        assert str(path) in message
        return

    assert report.entities == len(entities) == len({entity.entity_id for entity in entities})
    assert report.n_skipped == sum(report.skipped.values())
    for entity in entities:
        assert entity.entity_id
        assert entity.canonical_name
        for field in (*entity.names(), *entity.kb_types):
            field.encode("utf-8")
    with open_reader([path], form, type_map=type_map) as reader:
        counted = scan(reader, ReadReport(max_errors=None))
    assert counted.entities == len(entities)
    assert counted.names == sum(1 for entity in entities for _ in entity.names())
    assert (counted.report.rows, counted.report.skipped) == (report.rows, report.skipped)


@pytest.mark.parametrize("name", BASES)
def test_the_files_are_sound_before_the_damage(tmp_path: Path, name: str) -> None:
    """Each of them is known for what it is and read without a skip."""
    kind, content = BASES[name]
    (tmp_path / name).write_bytes(content)
    report = ReadReport(max_errors=0)

    with open_reader([tmp_path / name], "auto") as reader:
        assert list(reader.read(report))
    assert kind in FORMAT_NAMES
