"""Reading bases from tab-separated text.
The column of popularity, from a table to the answer.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cli_runner import Run
from effort import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tables import read_text

from ingest.base.format import ReadOptions, TableColumns
from ingest.base.reader import scan
from ingest.formats import open_reader
from ingest.io.report import ReadReport
from ingest.readers.columns import RESERVED
from ingest.readers.rows import NOTHING
from pearl_qdrant import make_entity
from pearl_qdrant.cells import split_list
from pearl_qdrant.errors import FormatError, InvalidEntityError, TooManyErrorsError
from pearl_qdrant.linking.editing import check_entity
from pearl_qdrant.records import Entity

read = partial(read_text, "tsv")


def write(path: Path, content: str) -> Path:
    """The path, with a file there."""
    path.write_text(content, encoding="utf-8", newline="")
    return path


def test_a_header_gives_the_columns_their_meaning() -> None:
    """Columns are known by name, in any order and case; unknown ones are kept as further fields."""
    text = "Source\tNAME\tDescription\tid\tAliases\tTypes\twiki\n"
    text += "geo\tParis\tcapital of France\tQ90\tCity of Light|Paname\tcity|GPE\t\n"

    assert read(text) == [
        Entity(
            "Q90",
            "Paris",
            ("City of Light", "Paname"),
            ("city", "GPE"),
            ("GPE",),
            "capital of France",
            {"Source": "geo"},
        )
    ]


def test_without_header_columns_are_known_by_place() -> None:
    """Id, name, and type and aliases where they look so; further columns are ignored, and the note says which."""
    assert read("C1\tflu\tDisease\tinfluenza|grippe\tmore\nC2\tcold\n") == [
        Entity("C1", "flu", ("influenza", "grippe"), ("Disease",), ("OTHER",)),
        Entity("C2", "cold"),
    ]


@pytest.mark.parametrize(
    "first, n_entities",
    [
        *((one, 1) for one in ("CUI\tname", "entity_id\tcanonical_name", "QID\tName", "id\tcanonical_name\ttype")),
        *((one, 2) for one in ("name\tParis", "Q1\tid", "Q1\tname")),
    ],
)
def test_a_header_has_words_for_ids_and_for_names(first: str, n_entities: int) -> None:
    """A first row with both is a header; with one of them it is an entity, which may be called "name"."""
    assert len(read(f"{first}\nC1\tflu\n")) == n_entities


def test_options_name_the_columns() -> None:
    """Options override the header; several type columns are united. Numbers count from 1; a header is skipped only if
    it is recognised.
    """
    text = "key\tid\tlabel\tkind\ttype\tother\nC1\tx\tflu\tDisease|T047\tT047\tgrippe\n"
    columns = TableColumns(id="key", name="LABEL", types=("kind", "type"), aliases=("other",))

    assert read(text, columns=columns) == [
        Entity("C1", "flu", ("grippe",), ("Disease", "T047"), ("OTHER",), None, {"column_id": "x"})
    ]
    columns = TableColumns(id="3", name="1", types=("2",))
    assert read("flu\tDisease\tC1\n", columns=columns) == [Entity("C1", "flu", (), ("Disease",), ("OTHER",))]
    assert [e.canonical_name for e in read("name\ttype\tid\nflu\tx\tC1\n", columns=columns)] == ["flu"]


def test_a_list_of_names_is_a_base() -> None:
    """One column is enough if it is named as both id and name, by number or by the header."""
    assert read("flu\ncold\n", columns=TableColumns(id="1", name="1")) == [Entity("flu", "flu"), Entity("cold", "cold")]
    named = read("name\tcountry\nParis\tFR\nRome\tIT\n", columns=TableColumns(id="name", name="name"))
    assert [one.entity_id for one in named] == ["Paris", "Rome"]


@pytest.mark.parametrize(
    "header, columns, option, message",
    [
        (
            "id\tname\ttype",
            TableColumns(id="cui"),
            "id",
            r"no column 'cui' for the id \(the columns are: id, name, type\)",
        ),
        ("id\tname\ttype", TableColumns(types=("kind",)), "type", "no column 'kind' for the type"),
        ("id\tname\ttype", TableColumns(aliases=("9",)), "alias", "there is no column 9 for the alias"),
        ("id\tname\ttype", TableColumns(name="0"), "name", "there is no column 0 for the name"),
        ("id\tname\ttype", TableColumns(popularity="views"), "popularity", "no column 'views' for the popularity"),
        ("id\tetikett", TableColumns(id="id"), "name", r"known to be the name. Name it .*: id, etikett"),
        ("id\tetikett\tkind", None, "name", "no column is known to be the name"),
        ("Country\tEtikett\tQID", None, "name", "no column is known to be the name"),
        ("flu\tC1", TableColumns(name="1"), "id", "known to be the id"),
        ("name\tcountry", None, "id", r"no column is known to be the id\. Name it, or the column of names for both"),
    ],
)
def test_a_column_that_is_not_there_is_asked_for(
    header: str, columns: TableColumns | None, option: str, message: str
) -> None:
    """A wrong option, or a header without ids or names, is an error that names the option and shows the header."""
    with pytest.raises(FormatError, match=message) as raised:
        read(f"{header}\nC1\tflu\tx\n", columns=columns)

    assert raised.value.option == f"{option}_column"


def test_further_columns_never_hide_a_field_of_a_point() -> None:
    """A column called like a payload field gets another name."""
    known = {"id", "name", "types", "kb_types", "description", "popularity"}
    header = ["id", "name", *sorted(RESERVED - known), "Types"]
    (entity,) = read("\t".join(header) + "\n" + "\t".join(f"v{i}" for i, _ in enumerate(header)) + "\n")

    assert not RESERVED & {key.casefold() for key in entity.extra}
    assert entity.extra["column_kb"] == f"v{header.index('kb')}"
    assert list(entity.names()) == [f"v{header.index('canonical_name')}", "v1"]


def test_a_name_beside_a_canonical_name_is_an_alias() -> None:
    """A file with one row a name makes one entity of its rows."""
    text = "id\tname\tcanonical_name\nC1\tflu\tinfluenza\nC1\tgrippe\tinfluenza\nC1\tinfluenza\tinfluenza\n"
    report = ReadReport()

    assert read(text, report=report) == [Entity("C1", "influenza", ("flu", "grippe"))]
    assert (report.rows, report.merged_rows, report.conflicting_names) == (3, 2, 0)


def test_names_are_left_as_they_are() -> None:
    """Quotes, None, NULL, NaN, odd line separators and combining marks are part of a name."""
    names = ['"Heroes"', "'s", "None", "NULL", "NaN", "a\u2028b\x85c\x0bd", "e\u0301", "#1", "-", "a|b\\c", "😀"]

    assert [e.canonical_name for e in read("".join(f"Q{i}\t{name}\n" for i, name in enumerate(names)))] == names


def test_bom_and_crlf_and_space_around_fields_are_dropped() -> None:
    """A file saved by a spreadsheet reads like any other; empty and repeated aliases are dropped."""
    assert read(b"\xef\xbb\xbfid\tname\ttype\taliases\r\n\r\n Q1 \t Paris\tGPE\t Paname | \r\n\t\t\t\r\n") == [
        Entity("Q1", "Paris", ("Paname",), ("GPE",), ("GPE",))
    ]
    assert read("Q1\tParis\t\t|Paname| |Paris|Paname|\n") == [Entity("Q1", "Paris", ("Paname",))]


@pytest.mark.parametrize(
    "cell, items",
    [
        (r"a\|b|c", ("a|b", "c")),
        (r"a\\|b", ("a\\", "b")),
        (r"a\\\|b", (r"a\|b",)),
        (r"C:\new", (r"C:\new",)),
        (r"C:\new|b", (r"C:\new", "b")),
        ("a\\", ("a\\",)),
        ("||", ()),
        ("", ()),
    ],
)
def test_bars_and_backslashes_are_escaped(cell: str, items: tuple[str, ...]) -> None:
    r"""``\|`` is a bar, ``\\`` a backslash, any other backslash is kept."""
    assert split_list(cell) == items


def test_rows_of_one_id_are_one_entity() -> None:
    """The first row's name is canonical, later names are aliases; types unite; the first description stays."""
    text = "id\tname\ttype\taliases\tdescription\tsource\n"
    text += "Q1\tParis\tGPE\tPaname\t\t\nQ2\tRome\n"
    text += "Q1\tCity of Light\tLOC|GPE\tParis|Lutetia\tcapital\ta\nQ1\tParis\t\t\tother\tb\nQ3\tOslo\nQ2\tRoma\n"
    report = ReadReport()

    assert read(text, report=report) == [
        Entity("Q3", "Oslo"),
        Entity(
            "Q1",
            "Paris",
            ("Paname", "City of Light", "Lutetia"),
            ("GPE", "LOC"),
            ("GPE", "LOC"),
            "capital",
            {"source": "a"},
        ),
        Entity("Q2", "Rome", ("Roma",)),
    ]
    assert (report.rows, report.entities, report.names) == (6, 3, 7)
    assert (report.merged_rows, report.conflicting_names) == (3, 3)


def test_bad_rows_are_counted_and_shown() -> None:
    """Rows without a name or id, too short or not text are skipped, counted, and shown with their line."""
    report = ReadReport()
    text = b"id\tname\ttype\nQ1\tParis\tGPE\nQ2\t \tGPE\n\tRome\tGPE\nQ4\nQ5\ta\tb\tc\n\n"
    text += "Q9\tß\n".encode() + b"Q6\t\xff\nQ7\ta\0b\nQ8\t\x1b[31m\t\t\n"

    assert [entity.entity_id for entity in read(text, report=report)] == ["Q1", "Q9", "Q8"]
    reasons = "no_name no_id too_few_columns too_many_columns invalid_utf8 nul_character".split()
    assert report.skipped == dict.fromkeys(reasons, 1)
    assert (report.rows, report.n_skipped, len(report.examples)) == (9, 6, 5)
    assert [skip.line for skip in report.examples] == [3, 4, 5, 6, 9]
    assert str(report.examples[0]) == r"-:3: no_name: Q2\t \tGPE"
    assert all(str(skip).isprintable() for skip in report.examples)


@pytest.mark.parametrize("max_errors, bad, stops", [(0, 1, True), (2, 2, False), (2, 3, True), (None, 500, False)])
def test_too_many_bad_rows_stop_the_run(max_errors: int | None, bad: int, stops: bool) -> None:
    """--max-errors N allows N bad rows; 0 allows none."""
    report = ReadReport(max_errors=max_errors)
    text = "Q1\tParis\n" + "Q2\n" * bad + "Q3\tOslo\n"
    if stops:
        with pytest.raises(TooManyErrorsError, match="too_few_columns") as caught:
            read(text, report=report)
        assert (caught.value.path, caught.value.line) == ("-", 2 + (max_errors or 0))
    else:
        assert len(read(text, report=report)) == 2


@pytest.mark.parametrize(
    "text, message",
    [
        ("id,name\nQ1,Paris\nQ2,Rome\n", "no tab separates"),
        ('{"id": 1}\n', "JSON"),
        ("Paris\nRome\n", "no tab separates"),
        ("\n\n \n", "blank lines"),
        ("id\t" + "x" * (2 << 20) + "\n", r"-:1: this line has more than 1,048,576 bytes .* begins: id"),
        ("id\tname\n", "header and no rows"),
    ],
)
def test_a_file_of_another_form_says_what_it_looks_like(text: str | bytes, message: str) -> None:
    """Commas instead of tabs, and other problems of the whole file, are reported immediately."""
    with pytest.raises(FormatError, match=message):
        read(text)


def test_several_files_are_one_base(tmp_path: Path) -> None:
    """Each file has its own header or none; an id may have rows in several of them."""
    first = write(tmp_path / "a.tsv", "id\tname\taliases\nQ1\tParis\tPaname\nQ2\tRome\n")
    second = tmp_path / "b.tsv.gz"
    second.write_bytes(gzip.compress(b"Q1\tLutetia\tGPE\nQ3\tOslo\tGPE\n"))
    with open_reader([first, second], "tsv") as reader:
        report = ReadReport()
        entities = list(reader.read(report))

    assert entities == [
        Entity("Q2", "Rome"),
        Entity("Q3", "Oslo", (), ("GPE",), ("GPE",)),
        Entity("Q1", "Paris", ("Paname", "Lutetia"), ("GPE",), ("GPE",)),
    ]
    by_position = "so the first line is a row unless options name the columns; columns: id 1, name 2"
    assert report.notes == [
        f"{first}: tab-separated; header; columns: id 1, name 2, aliases 3",
        f"{second}: tab-separated; no known header, {by_position}, type 3",
    ]


def test_a_limit_reads_only_the_beginning() -> None:
    """--limit 2 gives the first two entities with all their adjacent rows."""
    assert [tuple(e.names()) for e in read("Q1\ta\nQ1\tb\nQ2\tc\nQ3\td\n", limit=2)] == [("a", "b"), ("c",)]


field = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\t\n\r\0"), min_size=1, max_size=12)
words = field.map(str.strip).filter(lambda text: bool(text) and text not in NOTHING)
tricky = st.sampled_from(["none of it", '"', "|", "\\", "\\|", "a|b", "\\\\", "id", "name", "\u2028x\u2028".strip()])
items = st.lists(words | tricky, max_size=4, unique=True).map(tuple)


def to_cell(values: Iterable[str]) -> str:
    """The documented form of several values in one cell."""
    return "|".join(value.replace("\\", "\\\\").replace("|", "\\|") for value in values)


@st.composite
def bases(draw: st.DrawFn) -> list[Entity]:
    """Entities with different ids."""
    ids = draw(st.lists(words | tricky, min_size=1, max_size=6, unique=True))
    entities = []
    for entity_id in ids:
        name, aliases = draw(words | tricky), draw(items)
        aliases = tuple(alias for alias in aliases if alias != name)
        description = draw(st.none() | words)
        entities.append(Entity(entity_id, name, aliases, draw(items), (), description, {"x": draw(words)}))
    return entities


@settings(max_examples=examples(50), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(entities=bases(), has_bom=st.booleans(), line_end=st.sampled_from(["\n", "\r\n"]), shuffle=st.randoms())
def test_what_is_written_in_the_documented_form_reads_back_equal(
    entities: Sequence[Entity], has_bom: bool, line_end: str, shuffle: object
) -> None:
    """Any base survives being written as TSV and read again, with one row an entity."""
    rows = [["id", "name", "type", "aliases", "description", "x"]]
    rows += [
        [e.entity_id, e.canonical_name, to_cell(e.kb_types), to_cell(e.aliases), e.description or "", e.extra["x"]]
        for e in entities
    ]
    text = "\ufeff" * has_bom + "".join("\t".join(row) + line_end for row in rows)
    found = read(text, list_separators=("|",))  # a column of semicolons without any bar would be split at them

    assert [(e.entity_id, *e.names(), e.kb_types, e.description, dict(e.extra)) for e in found] == [
        (e.entity_id, *e.names(), e.kb_types, e.description, dict(e.extra)) for e in entities
    ]


def read_table(path: Path, columns: TableColumns | None = None, report: ReadReport | None = None) -> list[Entity]:
    """All entities of a file, scattered rows merged."""
    with open_reader([path], options=ReadOptions(columns=columns)) as reader:
        scattered = scan(reader, ReadReport(max_errors=None)).scattered
        return list(reader.read(report or ReadReport(), scattered=scattered))


def table(path: Path, *rows: str, header: str = "id\tname\tpopularity") -> Path:
    """The path, with a TSV file there."""
    path.write_text("\n".join((header, *rows)) + "\n", encoding="utf-8")
    return path


def test_a_column_called_popularity_needs_no_option() -> None:
    """Its numbers are read, in a table and in JSON; blank is unknown, and zero is a number."""
    rows = '{"id": 1, "name": "a", "popularity": 950.5}\n{"id": 2, "name": "b"}\n{"id": 3, "name": "c", "popularity":0}'
    for kind, text in (("tsv", "id\tname\tpopularity\n1\ta\t950.5\n2\tb\t\n3\tc\t0\n"), ("jsonl", rows)):
        entities = read_text(kind, text, report=ReadReport(max_errors=0))

        assert [(one.popularity, dict(one.extra)) for one in entities] == [(950.5, {}), (None, {}), (0.0, {})]


@pytest.mark.parametrize(
    "header, column, extra",
    [("id\tname\tviews\tpopularity\n", one, {"column_popularity": "high"}) for one in ("Views", "3")] + [("", "3", {})],
)
def test_an_option_names_the_column(header: str, column: str, extra: dict[str, str]) -> None:
    """Another column can be named, or numbered, also the third one without a header, which gives types else."""
    (entity,) = read(f"{header}Q90\tParis\t12\thigh\n", columns=TableColumns(popularity=column))

    assert entity == Entity("Q90", "Paris", extra=extra, popularity=12.0)


@pytest.mark.parametrize("cell", ["-1", "inf", "1e999", "many", "1_000x", "0x10"])
def test_what_is_no_number_is_left_out_and_said(tmp_path: Path, cell: str) -> None:
    """The entity stays; a warning says how many cells are no number, and where the first one is. Numbers as people
    write them are numbers, and marks for nothing are nothing.
    """
    rows = ("Q1\tA\t1,234", "Q2\tB\t1 234", "Q3\tC\t1'234", "Q4\tD\t1,234.0", "Q5\tE\tNaN", "Q6\tF\t-")
    usual = ReadReport()
    found = read_table(table(tmp_path / "usual", *rows), report=usual)
    assert ([one.popularity for one in found], usual.warnings) == ([1234.0] * 4 + [None] * 2, [])
    report = ReadReport()

    entities = read_table(table(tmp_path / "base", f"Q1\tA\t{cell}", "Q2\tB\t 2 "), report=report)

    assert [(one.entity_id, one.popularity) for one in entities] == [("Q1", None), ("Q2", 2.0)]
    (warning,) = report.warnings
    assert "1 rows have a popularity that is no number" in warning.message
    assert f":2: '{cell}'" in warning.message


@pytest.mark.parametrize("order", [[0, 1, 2, 3], [0, 3, 1, 2], [3, 2, 1, 0]])
def test_merged_rows_keep_the_largest(tmp_path: Path, order: list[int]) -> None:
    """Whether rows of an id are adjacent or scattered, and in any order."""
    rows = ["Q1\tA\t", "Q1\tB\t3", "Q1\tC\t2", "Q2\tD\t1"]

    entities = read_table(table(tmp_path / "base", *(rows[i] for i in order)))

    assert {one.entity_id: one.popularity for one in entities} == {"Q1": 3.0, "Q2": 1.0}


@pytest.mark.parametrize("popularity", [-1.0, float("nan"), float("inf"), "7", True, 1j])
def test_an_entity_of_my_own_is_checked(popularity: Any) -> None:
    """A popularity that cannot be compared, text, booleans and complex numbers are refused before it is stored."""
    if type(popularity) is float:
        with pytest.raises(InvalidEntityError, match="popularity"):
            make_entity("acme", "Acme", popularity=popularity)
    with pytest.raises(InvalidEntityError, match="popularity of entity 'acme' is no finite number"):
        check_entity(Entity("acme", "Acme", popularity=popularity))


def test_popularity_is_stored_shown_and_updated(run: Run, model: Path, tmp_path: Path) -> None:
    """`link`, `entities show` and an update know it, and an entity can be added with one."""
    path = table(tmp_path / "base.tsv", "Q90\tParis\t950.5", "Q1\tRome\t")
    assert run("ingest", str(path), "--model", str(model)).status == 0

    (link,) = run("link", "Paris", "--json", "--threshold", "0", "--limit", "2").lines()
    shown = run("entities", "show", "Q90").out
    table(path, "Q90\tParis\t0", "Q1\tRome\t5")
    (updated,) = run("ingest", str(path), "--model", str(model), "--update", "--json").lines()
    added = run("entities", "add", "--id", "X", "--name", "Oslo", "--popularity", "3")
    popularity = {one: run("entities", "show", one, "--json").lines()[0]["popularity"] for one in ("Q90", "Q1", "X")}

    candidates = link["candidates"]
    assert isinstance(candidates, list)
    assert {one["entity_id"]: one["popularity"] for one in candidates} == {"Q90": 950.5, "Q1": None}
    assert "popularity  950.5" in shown
    assert "popularity  0.0" in run("entities", "show", "Q90").out
    assert (updated["changed"], updated["added"]) == (2, 0)
    assert added.status == 0, added.err
    assert popularity == {"Q90": 0.0, "Q1": 5.0, "X": 3.0}
