"""Formats are detected by structure, work on the command line, and refuse options of other formats."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pyarrow
import pytest
from cli_runner import Run
from pyarrow import parquet
from tables import workbook
from umls_release import CONSO, atom
from wikidata_items import item

from ingest.formats import FORMAT_NAMES, FORMATS, ReadOptions, detect_format, open_reader
from ingest.io.report import ReadReport
from pearl_qdrant.cli.ingest import ingest
from pearl_qdrant.errors import FormatError, SettingsError

TTL = (
    "@prefix yago: <http://yago-knowledge.org/resource/> .\n"
    "@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .\n"
    'yago:Paris\trdfs:label\t"Paris"@en\t.\n'
    'yago:Rome\trdfs:label\t"Rome"@en\t.\n'
)
MESH = (
    "<?xml version='1.0'?>\n<DescriptorRecordSet><DescriptorRecord><DescriptorUI>D1</DescriptorUI><DescriptorName>"
    "<String>Toe</String></DescriptorName><ConceptList><Concept><TermList><Term><String>Toes</String></Term></TermList></Concept>"
    "</ConceptList></DescriptorRecord></DescriptorRecordSet>\n"
)
OBO = 'format-version: 1.2\n\n[Term]\nid: MADE:1\nname: sore toe\nsynonym: "toe pain" EXACT []\n'
GRAPH = json.dumps(
    {"graphs": [{"nodes": [{"id": f"u:{i}", "lbl": f"toe {i}", "type": "CLASS"} for i in range(2)], "edges": []}]}
)


def write(folder: Path, kind: str) -> Path:
    """A base of two names, or a few more, in a format."""
    if kind == "umls":
        path = folder / "2024AB" / "META"
        path.mkdir(parents=True)
        (path / "MRCONSO.RRF").write_text(CONSO, encoding="utf-8")
        return path.parent
    if kind == "rdf":
        path = folder / "yago.zip"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("yago-facts.ttl", TTL)
        return path
    if kind == "parquet":
        path = folder / "base.parquet.txt"
        parquet.write_table(pyarrow.table({"id": ["1", "2"], "name": ["Paris", "Rome"]}), path)
        return path
    if kind == "xlsx":
        return workbook(folder / "base.bin", {"Toys": [["id", "name"], [1, "Paris"], [2, "Rome"]]})
    text = {
        "mesh": MESH,
        "tsv": "id\tname\n1\tParis\n2\tRome\n",
        "csv": "id,name\n1,Paris\n2,Rome\n",
        "jsonl": '{"id": 1, "name": "Paris"}\n{"id": 2, "name": "Rome"}\n',
        "wikidata": f"[\n{json.dumps(item(1))},\n{json.dumps(item(2))}\n]\n",
        "obo": OBO,
        "obograph": GRAPH,
    }[kind]
    path = folder / f"base.{kind}.txt"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("kind", FORMAT_NAMES)
def test_a_format_is_known_by_its_structure(tmp_path: Path, kind: str) -> None:
    """The name of a file does not matter; its content decides."""
    path = write(tmp_path, kind)

    assert detect_format([path]) == kind
    with open_reader([path]) as reader:
        assert len(list(reader.read(ReadReport()))) >= 1


@pytest.mark.parametrize("kind", FORMAT_NAMES)
def test_each_format_can_be_ingested_from_the_command_line(run: Run, model: Path, tmp_path: Path, kind: str) -> None:
    """`ingest PATH` needs no option for any of them."""
    path = write(tmp_path, kind)

    outcome = run("ingest", str(path), "--model", str(model), "--collection", kind, "--json")

    assert outcome.status == 0, outcome.err
    (report,) = outcome.lines()
    assert report["points"] == report["names"]
    assert int(str(report["names"])) >= 2


def test_what_the_options_leave_out_is_in_the_report(run: Run, tmp_path: Path) -> None:
    """Rows in other languages, or suppressed, are counted by reason, apart from the bad ones."""
    outcome = run("ingest", str(write(tmp_path, "umls")), "--dry-run", "--language", "fi", "--json")

    assert outcome.status == 0, outcome.err
    (report,) = outcome.lines()
    assert report["names"] == 1
    left_out = report["left_out"]
    assert isinstance(left_out, dict)
    assert left_out["other_language"] > 0


def test_several_languages_are_taken_in_their_order(tmp_path: Path) -> None:
    """The first language gives the canonical name."""
    path = tmp_path / "MRCONSO.RRF"
    path.write_text(atom("C9000001", "heart") + atom("C9000001", "sydän", "A2", LAT="FIN"), encoding="utf-8")

    for languages, expected in ((("fi", "en"), "sydän"), (("en", "fi"), "heart")):
        with open_reader([path], options=ReadOptions(languages=languages)) as reader:
            (entity,) = reader.read(ReadReport())
            assert (entity.canonical_name, len(entity.aliases)) == (expected, 1)


@pytest.mark.parametrize(
    "words, expected",
    [
        (("--sab", "MSH"), "--sab is for umls, but the input is read as tsv"),
        (("--language", "fi"), "--language is for umls, wikidata, rdf"),
        (("--class", "Q5"), "--class is for wikidata"),
        (("--format", "wikidata", "--class", "person"), "not the id of a class: person"),
        (("--format", "umls", "--semantic-type", "DISX"), "DISO"),
    ],
)
def test_a_senseless_option_is_refused(run: Run, tmp_path: Path, words: tuple[str, ...], expected: str) -> None:
    """It is not ignored: the message names the formats that take it, or the valid values."""
    path = write(tmp_path, "umls" if "umls" in words else "tsv")

    outcome = run("ingest", str(path), "--dry-run", *words)

    assert outcome.status == 2
    assert expected in outcome.err.replace("\n", " ")


def test_a_folder_of_nothing_known_is_an_error(tmp_path: Path) -> None:
    """The message names the files that were searched for."""
    with pytest.raises(FormatError, match="MRCONSO"):
        detect_format([tmp_path])


def test_a_wrong_option_of_a_reader_is_a_setting_error(tmp_path: Path) -> None:
    """Whoever uses the SDK gets an error of ours."""
    with pytest.raises(SettingsError, match="tsv"):
        open_reader([write(tmp_path, "tsv")], options=ReadOptions(srl_max=0))


def test_the_command_line_offers_every_format() -> None:
    """Each format of the registry is a value of --format, and each of its options has a flag."""
    parameters = {flag: parameter for parameter in ingest.params for flag in parameter.opts}

    assert all(name in (parameters["--format"].help or "") for name in FORMAT_NAMES)
    assert {option.flag for one in FORMATS for option in one.options} <= set(parameters)


def test_two_formats_at_once_are_refused(tmp_path: Path) -> None:
    """The message names the format of each path."""
    with pytest.raises(FormatError, match=r"is obo.*is wikidata|is wikidata.*is obo"):
        detect_format([write(tmp_path, "obo"), write(tmp_path, "wikidata")])


def test_a_base_of_which_nothing_is_left_is_an_error(run: Run, tmp_path: Path) -> None:
    """A source that is not there makes no empty collection."""
    outcome = run("ingest", str(write(tmp_path, "umls")), "--sab", "NOPE")

    assert outcome.status == 1
    assert "other_source" in outcome.err
    assert run("collections", "list").out == ""


@pytest.mark.parametrize("kind", ["umls", "rdf"])
@pytest.mark.parametrize("other", ["obo", "wikidata"])
def test_a_folder_of_several_bases_is_refused(run: Run, tmp_path: Path, kind: str, other: str) -> None:
    """The message lists the bases; with --format, only that base is read."""
    folder = write(tmp_path, kind)
    if kind == "rdf":
        folder = tmp_path / "yago"
        folder.mkdir()
        (folder / "yago-facts.ttl").write_text(TTL, encoding="utf-8")
    beside = write(folder, other)

    refused = run("ingest", str(folder), "--dry-run", "--collection", "c")
    named = run("ingest", str(folder), "--dry-run", "--collection", "c", "--format", kind)

    assert (refused.status, named.status) == (1, 0), refused.err + named.err
    assert f"holds several bases: {kind} (" in refused.err
    assert f"{other} ({beside})" in refused.err.replace("\n", "")
    assert f"choose format {kind}. Option: --format" in refused.err.replace("\n", " ")


def test_other_files_beside_a_base_do_not_matter(tmp_path: Path) -> None:
    """A readme, a checksum or a folder of notes does not count as a base."""
    folder = write(tmp_path, "umls")
    (folder / "README.txt").write_text("how to read this\n", encoding="utf-8")
    (folder / "META" / "MRREL.RRF").write_text("C1|A1|AUI|PAR|C2|A2|AUI|isa|R1||S|S||Y|N||\n", encoding="utf-8")
    (folder / "notes").mkdir()

    assert detect_format([folder]) == "umls"
