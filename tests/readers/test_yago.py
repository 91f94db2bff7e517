"""The YAGO reader. All facts in these files are few and written for the tests."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path

import pytest
from yago_files import (
    CAFE,
    ELVIS,
    FACTS,
    PARIS,
    PREFIXES,
    TAXONOMY,
    VILLAGE,
    YAGO_4,
    YAGO_45,
    n_triples,
    read,
    turtle,
    write,
)

from ingest.formats import detect_format, open_reader
from ingest.io.report import ReadReport
from pearl_qdrant.errors import FormatError, TooManyErrorsError
from pearl_qdrant.records import Entity


def test_a_folder_of_yago_45_is_read(tmp_path: Path) -> None:
    """Facts, taxonomy and what is beyond Wikipedia make entities with names, types, description and Wikidata id."""
    report = ReadReport()

    assert read(write(tmp_path, YAGO_45), report=report) == [VILLAGE, CAFE, PARIS, ELVIS]
    assert report.filtered == {"other_language": 5, "generic_instance": 1, "no_name": 1}
    assert not report.skipped
    assert (report.entities, report.names) == (4, 5)
    assert any("1 entities have no name in these languages" in note for note in report.notes)


def test_yago_4_is_joined_from_its_files(tmp_path: Path) -> None:
    """Names, types, classes and Wikidata ids are joined from files in different orders; others are excluded."""
    elvis = replace(ELVIS, extra={"wikidata_id": "Q303"})

    assert sorted(read(write(tmp_path, YAGO_4)), key=repr) == [elvis, PARIS]


def test_yago_4_without_some_files_has_less(tmp_path: Path) -> None:
    """Labels alone give names; simple types are used if the full ones or the classes are missing."""
    labels = "yago-wd-labels.nt.gz"
    write(tmp_path / "labels", {labels: YAGO_4[labels]})
    simple = write(tmp_path / "simple", YAGO_4, without=("yago-wd-full-types.nt.gz", "yago-wd-sameAs.nt.gz"))
    no_classes = write(tmp_path / "no", YAGO_4, without=("yago-wd-class.nt.gz",))

    assert [entity.kb_types for entity in read(tmp_path / "labels" / labels)] == [(), ()]
    assert {entity.kb_types for entity in read(simple)} == {("City", "AdministrativeArea", "Place"), ("Person",)}
    assert {entity.kb_types for entity in read(no_classes)} == {("Old_town_Q1", "City"), ("Person",)}


def test_several_labels_make_one_canonical_name(tmp_path: Path) -> None:
    """With several labels of a language the order of the rows decides nothing; without a label an alternate name is."""
    rows = [
        'yago:A rdfs:label "b"@en',
        'yago:A rdfs:label "a"@en',
        'yago:A rdfs:label "0"',
        'yago:A schema:alternateName "a"@en',
    ]
    for i, order in enumerate((rows, rows[::-1])):
        folder = write(tmp_path / str(i), {"yago-facts.ttl": turtle("\n".join(order))})
        assert read(folder) == [Entity("A", "a", ("b", "0"), languages={"a": "en", "b": "en"})]
    alternates = (
        'yago:B schema:alternateName "y"@en\nyago:B schema:alternateName "x"@en\nyago:B schema:alternateName " "@en'
    )

    assert read(write(tmp_path / "c", {"yago-facts.ttl": turtle(alternates)})) == [
        Entity("B", "x", ("y",), languages={"x": "en", "y": "en"})
    ]


def test_what_is_no_entity_is_left_out(tmp_path: Path) -> None:
    """Generic instances and blank nodes are counted and excluded."""
    rows = 'yago:A_generic_instance rdfs:label "x"@en\nyago:As_Degree_1 rdfs:label "Generic instance"@en\n'
    rows += '_:b rdfs:label "y"@en'
    report = ReadReport()

    assert read(write(tmp_path, {"yago-facts.ttl": turtle(rows)}), report=report) == []
    assert report.filtered == {"generic_instance": 2, "blank_node": 1}


def test_a_tiny_yago_has_everything_in_one_file(tmp_path: Path) -> None:
    """A single file with schema, taxonomy and facts is read; its schema is not counted as damage."""
    schema = "schema:City a sh:NodeShape ;\n\trdfs:subClassOf schema:AdministrativeArea ;\n\ta rdfs:Class .\n"
    path = tmp_path / "yago-tiny.ttl"
    path.write_text(PREFIXES + schema + turtle(TAXONOMY).removeprefix(PREFIXES) + turtle(FACTS).removeprefix(PREFIXES))
    report = ReadReport()

    assert read(path, report=report) == [PARIS, ELVIS, CAFE]
    assert not report.skipped


def test_a_bad_row_is_counted_once_in_each_pass(tmp_path: Path) -> None:
    """Damage in a file that is joined counts too, stops past the limit, and is the same in a second pass."""
    damaged = gzip.decompress((write(tmp_path / "whole", YAGO_4) / "yago-wd-class.nt.gz").read_bytes()) + b"junk\n" * 3
    folder = write(tmp_path / "yago", YAGO_4 | {"yago-wd-class.nt": damaged.decode()}, without=("yago-wd-class.nt.gz",))
    with open_reader([folder]) as reader:
        for _ in range(2):
            report = ReadReport(max_errors=3)
            assert len(list(reader.read_runs(report))) == 2
            assert report.skipped == {"bad_triple": 3}
            assert report.examples[0].path.endswith("yago-wd-class.nt")
        with pytest.raises(TooManyErrorsError):
            list(reader.read_runs(ReadReport(max_errors=2)))


@pytest.mark.parametrize(
    "files, message",
    [
        ({"yago-taxonomy.ttl": turtle(TAXONOMY)}, "nothing has a name by a known property"),
        (
            {"yago-meta.ttl": PREFIXES, "yago-log.ttl": PREFIXES},
            "no file of RDF that names anything. There is: yago-log.ttl, ",
        ),
        ({"readme.txt": "hello"}, "no file of RDF that names anything"),
        ({"yago-facts.ttl": ""}, "yago-facts.ttl: is empty"),
        (
            {"yago-facts.ttl": turtle(FACTS) + 'yago:Rome rdfs:label "open\n'},
            "yago-facts.ttl:19: column 22: this Turtle cannot be read: ",
        ),
    ],
)
def test_a_folder_without_names_is_refused(tmp_path: Path, files: dict[str, str], message: str) -> None:
    """If the essential file is missing or broken, the error lists what is needed and what was found, and where."""
    with pytest.raises(FormatError, match=message):
        read(write(tmp_path, files))


def test_yago_is_found_by_its_content(tmp_path: Path) -> None:
    """A folder and a file are known as RDF, whatever their names; the vocabulary is found from their statements."""
    folder = write(tmp_path / "download", YAGO_45)
    (tmp_path / "some.txt").write_text(turtle(FACTS))
    report = ReadReport()

    assert detect_format([folder]) == detect_format([tmp_path / "some.txt"]) == "rdf"
    assert read(tmp_path / "some.txt", report=report, kind="auto")
    assert report.notes[0].endswith("some.txt: Turtle, YAGO")


def test_ids_become_names(tmp_path: Path) -> None:
    """A name that is made from an id has no escapes, underscores or Wikidata id; an id may contain a slash."""
    ids = [
        "Foo__u0028_bar_u0029_",
        "Foo_Q12",
        "_Q12",
        "Q12",
        "_uD83D_",
        "_u0000_x",
        "a_u1F600_b",
        "AC%2FDC_%28x%29",
        "A/B",
    ]
    rows = "\n".join("yago:X rdf:type schema:City".replace("yago:X", f"yago:{one}") for one in ids)
    text = n_triples(rows)

    assert [(entity.entity_id, entity.canonical_name) for entity in read(write(tmp_path, {"a.nt": text}) / "a.nt")] == [
        ("Foo__u0028_bar_u0029_", "Foo (bar)"),
        ("Foo_Q12", "Foo"),
        ("_Q12", "Q12"),
        ("Q12", "Q12"),
        ("_uD83D_", "uD83D"),
        ("_u0000_x", "u0000 x"),
        ("a_u1F600_b", "a😀b"),
        ("AC%2FDC_%28x%29", "AC/DC (x)"),
        ("A/B", "A/B"),
    ]
