"""The YAGO reader. All facts in these files are few and written for the tests."""

from __future__ import annotations

import bz2
import gzip
import zipfile
from pathlib import Path

import pytest
from effort import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ingest.readers.yago.files import Role, find_role, is_yago
from ingest.readers.yago.join import Table
from ingest.readers.yago.names import ClassTree, local_name, name_text
from ingest.readers.yago.reader import YagoOptions, YagoReader
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
    read,
    turtle,
    write,
)

from ingest.base.scan import scan
from ingest.base.type_map import TypeMap
from ingest.io.report import ReadReport
from pearl_qdrant.errors import FormatError, InputError, TooManyErrorsError
from pearl_qdrant.records import Entity


def test_a_folder_of_yago_45_is_read(tmp_path: Path) -> None:
    """Facts, taxonomy and what is beyond Wikipedia make entities with names, types, description and Wikidata id."""
    report = ReadReport()

    assert read(write(tmp_path, YAGO_45), report=report) == [VILLAGE, PARIS, ELVIS, CAFE]
    assert report.filtered == {"other_language": 5, "generic_instance": 1, "no_name": 1}
    assert not report.skipped
    assert (report.entities, report.names) == (4, 5)
    assert any("1 entities have no name in these languages" in note for note in report.notes)


def test_a_zip_is_read_as_its_folder_is(tmp_path: Path) -> None:
    """One zip, a zip for each file, compressed files and single files give the same entities."""
    folder = write(tmp_path / "folder", YAGO_45)
    with zipfile.ZipFile(tmp_path / "yago.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in YAGO_45.items():
            archive.writestr(f"yago/{name}", text)
    zips, packed = tmp_path / "zips", tmp_path / "packed"
    zips.mkdir()
    packed.mkdir()
    for name, text in YAGO_45.items():
        with zipfile.ZipFile(zips / name.replace(".ttl", ".zip"), "w") as archive:
            archive.writestr(name, text)
        (packed / f"{name}.bz2").write_bytes(bz2.compress(text.encode()))
    files = sorted(path for path in folder.iterdir() if path.suffix == ".ttl")

    for paths in ([tmp_path / "yago.zip"], [zips], [packed], files):
        assert read(*paths) == read(folder) == [VILLAGE, PARIS, ELVIS, CAFE]
        assert all(map(is_yago, paths))


def test_yago_4_is_joined_from_its_files(tmp_path: Path) -> None:
    """Names, types, classes and Wikidata ids are joined from files in different orders; others are excluded."""
    elvis = Entity("Elvis_Presley", "Elvis Presley", (), ("Person",), ("PERSON",), None, {"wikidata_id": "Q303"})

    assert read(write(tmp_path, YAGO_4)) == [PARIS, elvis]


def test_yago_4_without_some_files_has_less(tmp_path: Path) -> None:
    """Labels alone give names; simple types are used if the full ones or the classes are missing."""
    labels = "yago-wd-labels.nt.gz"
    write(tmp_path / "labels", {labels: YAGO_4[labels]})
    simple = write(tmp_path / "simple", YAGO_4, without=("yago-wd-full-types.nt.gz", "yago-wd-sameAs.nt.gz"))
    no_classes = write(tmp_path / "no", YAGO_4, without=("yago-wd-class.nt.gz",))

    assert [entity.kb_types for entity in read(tmp_path / "labels" / labels)] == [(), ()]
    assert [entity.kb_types for entity in read(simple)] == [("City", "AdministrativeArea", "Place"), ("Person",)]
    assert [entity.kb_types for entity in read(no_classes)] == [("Old_town_Q1", "City"), ("Person",)]


def test_languages_are_chosen_in_their_order(tmp_path: Path) -> None:
    """The first language that an entity has gives its canonical name; labels of another file are joined to it."""
    paris, elvis, cafe, nowhere = read(
        write(tmp_path, YAGO_45), options=YagoOptions(languages=("fr", "en", "ES"), include_beyond=False)
    )

    assert list(paris.names()) == ["Paris", "París", "City of Light", "Ville Lumière"]
    assert paris.kb_types == PARIS.kb_types
    assert (elvis, cafe) == (ELVIS, CAFE)
    assert nowhere == Entity("Nowhere", "Nulle part")


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
        assert read(folder) == [Entity("A", "a", ("b", "0"))]
    alternates = (
        'yago:B schema:alternateName "y"@en\nyago:B schema:alternateName "x"@en\nyago:B schema:alternateName " "@en'
    )

    assert read(write(tmp_path / "c", {"yago-facts.ttl": turtle(alternates)})) == [Entity("B", "x", ("y",))]


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
    assert report.filtered["statement_over_lines"] == 3


def test_scan_and_read_agree(tmp_path: Path) -> None:
    """A scan counts what is read, and a second pass of the same reader gives the same report."""
    with YagoReader([write(tmp_path, YAGO_45)], YagoOptions(languages=("fr", "de", "en"))) as reader:
        result = scan(reader)
        report = ReadReport()
        entities = list(reader.read(report, scattered=result.scattered))
        assert report == result.report
        assert list(reader.read(ReadReport())) == entities
    assert result.entities == len(entities) == len({entity.entity_id for entity in entities})
    assert result.names == sum(1 for entity in entities for _ in entity.names())


def test_a_limit_ends_the_reading(tmp_path: Path) -> None:
    """A limit reads at most this many entities."""
    folder = write(tmp_path, YAGO_45)

    assert [len(read(folder, limit=limit)) for limit in (0, 1, 3, 99)] == [0, 1, 3, 4]


def test_a_bad_row_is_counted_once_in_each_pass(tmp_path: Path) -> None:
    """Damage in a file that is read beforehand counts too, stops past the limit, and is the same in a second pass."""
    files = YAGO_45 | {"yago-taxonomy.ttl": turtle(TAXONOMY) + "junk\n" * 3}
    with YagoReader([write(tmp_path, files)]) as reader:
        for _ in range(2):
            report = ReadReport(max_errors=3)
            assert len(list(reader.read_runs(report))) == 4
            assert report.skipped == {"bad_triple": 3}
            assert report.examples[0].path.endswith("yago-taxonomy.ttl")
        with pytest.raises(TooManyErrorsError):
            list(reader.read_runs(ReadReport(max_errors=2)))


@pytest.mark.parametrize(
    "files, message",
    [
        ({"yago-taxonomy.ttl": turtle(TAXONOMY)}, "no file of YAGO with names.*yago-taxonomy.ttl .classes"),
        ({"yago-meta.ttl": PREFIXES}, "no file of YAGO with names"),
        ({"readme.txt": "hello"}, "no .nt or .ttl file"),
        ({"yago-facts.ttl": ""}, "yago-facts.ttl: is empty"),
    ],
)
def test_a_folder_without_names_is_refused(tmp_path: Path, files: dict[str, str], message: str) -> None:
    """If the essential file is missing, the error lists what is needed and what was found."""
    with pytest.raises(FormatError, match=message):
        read(write(tmp_path, files))


def test_a_truncated_file_is_an_error(tmp_path: Path) -> None:
    """A file that was cut off while it was fetched does not pass for a smaller base, whichever it is."""
    for name in ("yago-wd-labels.nt.gz", "yago-wd-full-types.nt.gz", "yago-wd-class.nt.gz", "yago-wd-sameAs.nt.gz"):
        folder = write(tmp_path / name[:15], YAGO_4)
        (folder / name).write_bytes((folder / name).read_bytes()[:-9])
        with pytest.raises(FormatError, match="ends early"):
            read(folder)


def test_a_zip_that_climbs_out_is_refused(tmp_path: Path) -> None:
    """An archive with a member outside of it is refused as unsafe."""
    with zipfile.ZipFile(tmp_path / "yago.zip", "w") as archive:
        archive.writestr("../yago-facts.ttl", YAGO_45["yago-facts.ttl"])

    with pytest.raises(FormatError):
        read(tmp_path / "yago.zip")
    assert not is_yago(tmp_path / "yago.zip")


def test_yago_is_told_from_other_files(tmp_path: Path) -> None:
    """A download is detected by the names of its files or by their content."""
    folder = write(tmp_path / "yago", YAGO_45)
    (tmp_path / "some.ttl").write_text(turtle(FACTS))
    (tmp_path / "other.nt").write_text("<http://a/b> <http://a/c> <http://a/d> .\n")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "cut.gz").write_bytes(gzip.compress(b"x" * 99)[:20])

    assert is_yago(folder)
    assert is_yago(tmp_path / "some.ttl")
    for name in ("other.nt", "loop", "cut.gz", "missing", "."):
        assert not is_yago(tmp_path / name)
    assert not is_yago("-")


def test_names_of_files_tell_their_role() -> None:
    """Versions, folders and compression in a file's name do not matter."""
    roles = {
        "yago-wd-simple-types.nt.gz": Role.SIMPLE_TYPES,
        "4/yago-wd-full-types.nt": Role.FULL_TYPES,
        "yago-wd-sameAs.nt.gz": Role.SAME_AS,
        "yago-wd-schema.nt.gz": Role.CLASSES,
        "yago-schema.ttl": Role.NOTHING,
        "yago-4.5.0.2-beyond-wikipedia-labels.ttl.zst": Role.LABELS,
        "YAGO-FACTS.TTL": Role.FACTS,
        "yago-wd-facts.nt.gz": Role.NOTHING,
        "yago-wd-annotated-facts.ntx.gz": Role.NOTHING,
        "anything.ttl": Role.WHOLE,
        "readme.md": None,
    }
    assert {name: find_role(name) for name in roles} == roles


def test_local_names_become_text() -> None:
    """A name that is made from an id has no escapes, underscores or Wikidata id."""
    assert local_name("http://yago-knowledge.org/resource/AC/DC") == "AC/DC"
    assert local_name("http://www.w3.org/2000/01/rdf-schema#Class") == "Class"
    texts = ["Foo__u0028_bar_u0029_", "Foo_Q12", "_Q12", "Q12", "_uD83D_", "_u0000_x", "a_u1F600_b", "AC%2FDC_%28x%29"]
    assert [name_text(text) for text in texts] == [
        "Foo (bar)",
        "Foo",
        "Q12",
        "Q12",
        "uD83D",
        "u0000 x",
        "a😀b",
        "AC/DC (x)",
    ]


def test_classes_know_what_is_above_them() -> None:
    """Ancestors are listed nearest first, each once, also with cycles, without the top class."""
    tree = ClassTree([("a", "b"), ("b", "a"), ("b", "c"), ("c", "Thing"), ("x", "x")])

    assert tree.walk_up(["a"]) == (["a", "b", "c"], [0, 1, 2])
    assert tree.walk_up(["unknown", "x", "a"]) == (["unknown", "x", "a", "b", "c"], [0, 0, 0, 1, 2])


def test_classes_of_schema_org_have_coarse_types() -> None:
    """Classes of schema.org have the coarse types that one expects."""
    names = ["CreativeWork", "AdministrativeArea", "BodyOfWater", "Airport", "SportsTeam", "Award", "Intangible"]

    assert [TypeMap.load().map_types([name]) for name in names] == [
        ("WORK_OF_ART",), ("GPE",), ("LOC",), ("FAC",), ("ORG",), ("OTHER",), ()
    ]  # fmt: skip


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 2**32 - 1)), max_size=60))
@settings(deadline=None)
def test_a_table_finds_what_was_put_in(rows: list[tuple[int, int]]) -> None:
    """All numbers of a subject are found, in their order."""
    table = Table()
    expected: dict[str, list[int]] = {}
    for subject, value in rows:
        table.add(str(subject), value)
        expected.setdefault(str(subject), []).append(value)
    table.finish()

    assert table.find([str(i) for i in range(41)]) == [expected.get(str(i), []) for i in range(41)]


_LINES = (PREFIXES + turtle(FACTS).removeprefix(PREFIXES)).encode().splitlines(keepends=True)
_SCRAPS = st.sampled_from([*_LINES, b"\0", b"\xff", b'"', b"\\", b"<", b".", b"\n", b"\t", b"yago:", b"rdfs:label"])


@given(
    st.sampled_from(["yago-facts.ttl", "yago-labels.ttl", "yago-taxonomy.ttl", "yago-wd-labels.nt", "yago-tiny.ttl"]),
    st.one_of(st.binary(max_size=100), st.lists(_SCRAPS, max_size=25).map(b"".join)),
)
@settings(deadline=None, max_examples=examples(150), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_bytes_break_it(tmp_path: Path, name: str, content: bytes) -> None:
    """Any bytes in any file give entities, counted rows, or an error that explains what is wrong."""
    for old in tmp_path.iterdir():
        old.unlink()
    write(tmp_path, {"yago-facts.ttl": turtle(FACTS)})
    (tmp_path / name).write_bytes(content)
    try:
        entities = read(tmp_path, report=ReadReport(max_errors=None))
    except InputError:
        return
    assert len({entity.entity_id for entity in entities}) == len(entities)
    for entity in entities:
        assert entity.canonical_name
        assert entity.canonical_name not in entity.aliases
