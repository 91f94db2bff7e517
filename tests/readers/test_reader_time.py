"""Reading takes time in proportion to the input: expressions, loops and walks that would not are counted or tried.

Where work cannot be counted, the input is so large that more than proportional time would be hours.
"""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from obo_terms import read as read_obo
from umls_release import RELEASE, definition
from umls_release import write as write_umls
from wikidata_items import dump, item
from wikidata_items import read as read_wikidata
from yago_files import read as read_yago
from yago_files import turtle
from yago_files import write as write_yago

from ingest.base import ancestors
from ingest.base.ancestors import ClassGraph, nearest_types, walk_up
from ingest.formats import ReadOptions
from ingest.io import limits, source
from ingest.io.report import ReadReport
from ingest.io.streams import Source
from ingest.readers import umls
from ingest.readers.obo import plain_value, quoted_value
from ingest.readers.umls import UmlsReader
from ingest.readers.wikidata_classes import MAX_KB_TYPES
from pearl_qdrant.cells import split_list

LONG = 200_000


@pytest.fixture
def walked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Number of classes found by each walk up."""
    counts: list[int] = []

    def count(classes: object, parents_of: object, most: int) -> tuple[list[object], list[int]]:
        found = walk_up(classes, parents_of, most)  # type: ignore[arg-type, var-annotated]
        counts.append(len(found[0]))
        return found

    monkeypatch.setattr(ancestors, "walk_up", count)
    return counts


@pytest.mark.parametrize(
    "value",
    [
        "a {" + "a=a" * 10_000 + '"}',
        "a {" + "a=b  " * 10_000 + '"}',
        "a {" + "a=b,, " * 10_000 + '"}',
        'a {a="' + '\\"' * 10_000 + "}",
        "a {" + " " * 10_000 + "a=}",
        "a" + " {" * LONG + "}",
        "a {" + "a=b, " * LONG + "c=d}",
    ],
    ids=["keys and values", "blanks", "commas", "quotes", "spaces", "braces", "too long"],
)
def test_what_is_nearly_a_modifier_is_read_at_once(value: str) -> None:
    """A value with text that only looks like modifiers is kept, and is recognised in linear time."""
    assert plain_value(value).startswith("a {")
    assert plain_value(value).endswith("}")


def test_modifiers_are_still_cut_off() -> None:
    """Key and value with or without quotes, blanks and commas; braces that hold something else belong to the name."""
    cut = ["{}", "{ }", "{a=b}", '{a="b, {c}"}', '{a="b",c=d , e = "f\\"g" h=i,}', "{a=b=c}", '{a="b"c="d"}', "{a,b=c}"]
    kept = ["{a}", "{a=}", "{=b}", '{a="b}', "{a=b} c}", "{{a=b}}"]

    assert [plain_value(f"name {modifiers}") for modifiers in cut] == ["name"] * len(cut)
    assert [plain_value(f"name {braces}") for braces in kept] == [f"name {braces}" for braces in kept]


def test_long_values_with_quotes_and_escapes_are_read() -> None:
    """Quotes that are not closed, and escapes without end, cost no more than their length."""
    assert quoted_value('"' + "\\" * 2 * LONG) is None
    assert quoted_value('"' + "\\n" * LONG + '" EXACT') == ("", " EXACT")
    assert split_list("\\" * 2 * LONG + "|x") == ("\\" * LONG, "x")
    assert split_list("\\|" * LONG) == ("|" * LONG,)


def test_a_walk_up_ends_with_its_classes_or_steps() -> None:
    """A walk visits a limited number of classes, nearest first, and few edges, in any graph."""
    looked_at: list[int] = []

    def chain(number: int) -> tuple[int, ...]:
        looked_at.append(number)
        return (number + 1,)

    def everything(number: int) -> range:
        looked_at.append(number)
        return range(300)

    assert walk_up([0], chain, 64) == (list(range(64)), list(range(64)))
    assert len(looked_at) <= 64
    looked_at.clear()
    assert walk_up([7, 5], everything, 300)[0][:4] == [7, 5, 0, 1]
    assert len(looked_at) <= 8 + 1
    assert walk_up(range(99), chain, 9)[0] == list(range(9))


def test_types_come_from_the_lowest_classes_that_have_some() -> None:
    """Of a walk, the classes at the least height that have types give them, in their order."""
    graph = ClassGraph([1, 1, 2, 3, 2], [3, 2, 4, 4, 5])
    types = {4: "LOC", 5: "GPE", 2: "", 3: None}

    assert nearest_types(*graph.walk_up([1], 9), lambda number: types.get(number) or None) == ("LOC", "GPE")
    assert nearest_types(*graph.walk_up([5, 4], 9), types.get) == ("GPE", "LOC")
    assert nearest_types(*graph.walk_up([3], 1), types.get) == ()


def test_a_chain_of_terms_is_read_in_bounded_steps() -> None:
    """In an ontology that is one long chain, each term has its nearest ancestors."""
    n = 3_000
    entities = read_obo("".join(f"[Term]\nid: A:{i}\nname: n\nis_a: A:{i + 1}\n\n" for i in range(n)))

    assert entities[0].kb_types == tuple(f"A:{i}" for i in range(1, limits.MAX_KB_TYPES + 1))
    assert len(entities[n // 2].kb_types) == limits.MAX_KB_TYPES
    assert entities[-1].kb_types == (f"A:{n}",)


def test_a_chain_of_wikidata_classes_is_read_in_bounded_steps(
    monkeypatch: pytest.MonkeyPatch, walked: list[int]
) -> None:
    """A class far below all others knows the nearest of them; none is walked further than the bound."""
    monkeypatch.setattr(limits, "MAX_ANCESTORS", 100)
    n = 1_000
    entities = read_wikidata(dump(*(item(i, above=[i + 1]) for i in range(1_000_000, 1_000_000 + n))))

    assert entities[0].kb_types == tuple(f"Q{1_000_000 + i}" for i in range(1, MAX_KB_TYPES + 1))
    assert max(walked) == 100
    assert len(walked) <= 2 * n


def test_a_chain_of_yago_classes_is_read_in_bounded_steps(tmp_path: Path) -> None:
    """Likewise in YAGO, with a type for each class of a chain."""
    n = 2_000
    chain = "\n".join(f"yago:C{i} rdfs:subClassOf yago:C{i + 1}" for i in range(n))
    typed = "\n".join(f"yago:E{i} rdf:type yago:C{i}" for i in range(n))
    write_yago(tmp_path, {"yago-taxonomy.ttl": turtle(chain), "yago-facts.ttl": turtle(typed)})

    entities = read_yago(tmp_path)

    assert entities[0].kb_types == tuple(f"C{i}" for i in range(limits.MAX_KB_TYPES))
    assert entities[-1].kb_types == (f"C{n - 1}", f"C{n}")


def test_ids_that_a_term_replaced_are_bounded() -> None:
    """A term with many stanzas that replaced many ids gets a limited number of them."""
    gone = "".join(f"[Term]\nid: B:{i}\nis_obsolete: true\nreplaced_by: A:1\n\n" for i in range(2_000))
    (entity,) = read_obo(gone + "[Term]\nid: A:1\nname: n\n\n" * 3)

    assert entity.extra["alt_ids"].split("|") == [f"B:{i}" for i in range(1_000)]


@pytest.mark.parametrize("compression", ["gzip", "zstd"])
def test_many_small_streams_are_not_copied_over_and_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compression: str
) -> None:
    """A file of ten thousand streams is passed to the decoders about once, not again for each stream."""
    compress: Callable[[bytes], bytes] = {"gzip": gzip.compress, "zstd": zstandard.ZstdCompressor().compress}[
        compression
    ]
    given: list[int] = []
    new_decoder = source._new_decoder

    class Counting:
        def __init__(self, compression: str) -> None:
            self._inner = new_decoder(compression)

        def __getattr__(self, name: str) -> object:
            return getattr(self._inner, name)

        def decompress(self, data: bytes, *most: int) -> bytes:
            given.append(len(data))
            return self._inner.decompress(data, *most)

    monkeypatch.setattr(source, "_new_decoder", Counting)
    member = compress(b"\n")
    path = tmp_path / "f"
    path.write_bytes(member * 10_000)

    assert b"".join(Source(path).chunks()) == b"\n" * 10_000
    assert sum(given) <= 10_000 * 2048, "each member is given little more than itself"


def test_two_passes_over_zstd_do_not_disturb_each_other() -> None:
    """Streams that are read at the same time have decoders of their own."""
    text = "".join(f"Q{i}\tname {i * 7919}\n" for i in range(100_000)).encode()
    half = len(text) // 2
    compress = zstandard.ZstdCompressor().compress
    opened = Source("-", io.BytesIO(compress(text[:half]) + compress(text[half:])))
    first, second = opened.chunks(), opened.chunks()
    found = [b"", b""]
    for one, other in zip(first, second, strict=True):
        found[0] += one
        found[1] += other

    assert found == [text, text]
    opened.close()


def test_definitions_of_a_concept_are_tried_up_to_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A concept whose definitions belong to other atoms is not searched through for each of its rows."""
    text = "".join(definition("C9000001", f"A{i}", f"X{i}", f"text {i}") for i in range(9)) + definition(
        "C9000001", "A10", "Z", "its own"
    )
    meta = write_umls(tmp_path, RELEASE | {"MRDEF.RRF": text.encode()})

    def first() -> str | None:
        with UmlsReader([meta], ReadOptions()) as reader:
            return next(reader.read(ReadReport())).description

    assert first() == "its own"
    monkeypatch.setattr(umls, "_MAX_DEFINITIONS", 3)
    assert first() is None
