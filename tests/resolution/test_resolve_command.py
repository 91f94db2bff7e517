"""What `resolve` asks: doubts, proposals, types, and a judge that answers.
`pearl-qdrant resolve`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from cli_runner import Run
from pair_table import other_outcomes
from resolution_names import LetterEncoder

from pearl_qdrant import EntityLinker
from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.resolution import Decision, NameRecord, Question, Resolution, read_names, resolution, resolve
from pearl_qdrant.resolution.resolution import Verdict


def resolved(*names: str | NameRecord, **options: object) -> Resolution:
    """Names resolved by their letters."""
    return resolve(names, encoder=LetterEncoder(), **options)  # type: ignore[arg-type]


def is_one(found: Resolution, one: str, other: str) -> bool:
    """Whether two names have one node."""
    nodes = {row.name: row.node_id for row in found.names}
    return nodes[one] == nodes[other]


def asked(found: Resolution) -> dict[frozenset[str], str]:
    """The reasons of the pairs for review, by their names."""
    return {frozenset((pair.name, pair.other)): pair.reason for pair in found.review}


def test_a_doubt_is_asked_and_not_merged() -> None:
    """Owners, numbers, titles and words that are spelt alike are for a person, however near the names are."""

    def outcome(one: str, other: str) -> str:
        kind = "person" if other.endswith(" 7") else "thing"
        found = resolved(NameRecord(one, kind), NameRecord(other, kind))
        return "merged" if is_one(found, one, other) else asked(found).get(frozenset((one, other)), "not asked")

    assert other_outcomes(__file__, "doubt", outcome) == []


def test_contradictions_are_neither_merged_nor_asked() -> None:
    """Names of which each has what excludes the other are two things."""

    def outcome(one: str, other: str) -> str:
        found = resolved(NameRecord(one, "person"), NameRecord(other, "person"), precision=0.5)
        return "one" if is_one(found, one, other) else asked(found).get(frozenset((one, other)), "two")

    assert other_outcomes(__file__, "contradiction", outcome) == []


OTHERS = [
    f"{one} {two} {three}" for one in ("Blue", "Old", "Grand") for two in ("Harbour", "Elm") for three in ("Inn", "Ox")
]
EMILIA = [NameRecord(one, "person") for one in ("Emilia", "Emilia Berg", "Emilia Sandoval")]
GVP = ("GVDP", "Gross Vallen Domestic Product", "GVNP", "Gross Vallen National Product")


@pytest.mark.parametrize(
    "names, precision, nodes, pair, why",
    [
        (("DR Kovra", "Republic of the Kovra"), None, 2, (), None),  # letters in capitals are no title
        # UNKNOWN, no type and `concept` match a special type; `location` matches `city`
        ([NameRecord("Design Sprint", one) for one in ("method", "UNKNOWN", "", "concept")], None, 1, (), None),
        ([NameRecord("Lund", one) for one in ("city", "location")], None, 1, (), None),
        # a part of two names joins neither; beside one of them it does
        (EMILIA, 0.5, 3, ("Emilia", "Emilia Berg"), "part of several names"),
        (("Kovra KGaA", "Kovra & Co.", "Kovra"), None, 3, ("Kovra KGaA", "Kovra"), "part of several names"),
        (("Kovra & Co.", "Kovra"), None, 1, (), None),
        # initials of two things of the list, or common ones
        (
            ("VQZ", "Vallen Quorn Zone", "Verdant Quay Zoo", *OTHERS),
            None,
            15,
            ("VQZ", "Vallen Quorn Zone"),
            "acronym of several names",
        ),
        (("BHI", *OTHERS), None, 13, ("BHI", "Blue Harbour Inn"), None),
        (GVP, 0.5, 2, ("GVDP", "GVNP"), None),  # alike, each with another acronym
    ],
)
def test_names_have_as_many_nodes_as_things(
    names: Sequence[str | NameRecord], precision: float | None, nodes: int, pair: Sequence[str], why: str | None
) -> None:
    """What may be two things is not merged; what is asked has this reason."""
    found = resolved(*names, **({} if precision is None else {"precision": precision}))
    assert len({one.node_id for one in found.names}) == nodes
    assert not pair or not is_one(found, *pair)
    assert why is None or asked(found)[frozenset(pair)] == why


@pytest.mark.parametrize("null", [None, float("nan")], ids=str)
def test_null_cells_are_no_type_and_no_name(null: Any) -> None:
    """Names from rows of a table may have null cells beside them; a name that is null itself is left out."""
    rows: list[tuple[Any, Any]] = [("Lund", null), ("Lund", "city"), (null, "city"), (2023, null)]
    found = resolved(*(NameRecord(*row) for row in rows), null)
    assert {(one.name, one.type) for one in found.names} == {("Lund", ""), ("Lund", "city"), ("2023", "")}
    assert found.node(NameRecord("Lund", null)) == found.node("Lund", "city")
    assert {one.type for one in resolved(*(NameRecord(*row) for row in rows), null, type_mode="off").names} == {""}
    record = NameRecord("WHO", source=null, context=null)
    assert (record.source, record.context) == ("", "")


def test_equal_names_of_types_that_differ_are_asked() -> None:
    """The planet and the element stay two nodes, a name without a type joins neither, and all of it is asked."""
    found = resolved(*(NameRecord("Mercury", type_) for type_ in ("planet", "element", "")))
    assert len({one.node_id for one in found.names}) == 3
    assert {pair.reason for pair in found.review} == {"equal names of different types"}
    off = resolved(NameRecord("Mercury", "planet"), NameRecord("Mercury", "element"), type_mode="off")
    assert len({one.node_id for one in off.names}) == 1


def test_a_longer_name_with_another_word_is_no_rival(shipped: Encoder) -> None:
    """A name without its legal form joins the company, though another one begins nearly so."""
    found = resolve(["Kovra Corp", "Kovra Corporation", "KOVRA", "Kovna Studios"], encoder=shipped)
    assert is_one(found, "Kovra Corp", "Kovra Corporation")
    assert is_one(found, "Kovra Corp", "KOVRA")
    assert not is_one(found, "KOVRA", "Kovna Studios")


def test_a_part_of_one_thing_joins_it_last() -> None:
    """Titles and a family name join the node of the only person that they fit, however that one is written."""
    names = ["Angela Vindemark", "Angela Karin Vindemark", "Vindemark", "Chancellor Vindemark", "Oslo"]
    found = resolved(*(NameRecord(name, "person") for name in names))
    assert len({one.node_id for one in found.names if one.name != "Oslo"}) == 1
    assert {one.reason for one in found.names if one.name == "Vindemark"} == {"part of the name"}


@pytest.mark.parametrize(
    "short, long",
    [
        ("VQZC", "Vallen Quorn Zone Company Ltd."),
        ("V9m", "Vallenquorm"),
        ("VQZ", "Vallen Quorn Zone"),
        ("V.Q.Z.", "Vallen Quorn Zone"),
        ("Z&Q", "Zellman and Quorn"),
    ],
)
def test_an_acronym_joins_the_one_thing_that_it_fits(short: str, long: str) -> None:
    """Without sources, initials of one name of the list alone are its acronym, where chance would not give them."""
    found = resolved(short, long, *OTHERS)
    assert is_one(found, short, long)
    assert {one.reason for one in found.names if one.name == short} == {"initials"}


def test_a_proposal_merges_nothing() -> None:
    """With `propose` every name has its own node, and what would be merged is for review with its probability."""
    found = resolved("Aldermann Pharma", "aldermann pharma", "Aldermann Pharma GmbH", propose=True)
    assert len({one.node_id for one in found.names}) == 3
    assert len(found.review) == 2
    assert all(pair.reason.startswith("would merge: ") and pair.probability > 0.9 for pair in found.review)


def test_the_review_begins_with_what_changes_most(tmp_path: Path) -> None:
    """Pairs of names that were given often come first, and the file says how often."""
    names = [NameRecord("Mercury", type_) for type_ in ("planet", "element")]
    often = [NameRecord("Saturn", type_) for type_ in ("planet", "god") for _ in range(5)]
    found = resolved(*names, *often)
    assert [(pair.name, pair.change) for pair in found.review] == [("Saturn", 5), ("Mercury", 1)]
    found.write(tmp_path / "nodes.tsv", review=tmp_path / "review.tsv")
    assert (tmp_path / "review.tsv").read_text().splitlines()[1].endswith("\t5")


def test_answers_are_remembered(tmp_path: Path) -> None:
    """What a person decided is in the nodes: a later run neither merges nor asks it again."""
    names = [NameRecord("Mercury", type_) for type_ in ("planet", "element")]
    found = resolved(*names)
    found.write(tmp_path / "nodes.tsv", review=tmp_path / "review.tsv")
    review = (tmp_path / "review.tsv").read_text().splitlines()
    (tmp_path / "review.tsv").write_text("\n".join([review[0], "different" + review[1], ""]))
    decided = resolved(previous=tmp_path / "nodes.tsv", decisions=tmp_path / "review.tsv")
    assert not decided.review
    again = resolved(*names, "Venus", previous=decided)
    assert not again.review
    assert len({one.node_id for one in again.names}) == 3


@pytest.mark.parametrize(
    "right, wrong",
    [
        ("Government Library Foundation", "Goverment Library Foundation"),  # a letter less
        ("Northern Railway Museum", "Northern Railwway Museum"),  # a letter more
        ("Quarterly Climate Report", "Quarterly Clmiate Report"),  # two letters swapped
        ("Institute for Economic Research", "Institute for Ecanomic Research"),  # another letter
    ],
)
def test_a_canonical_name_is_not_the_misspelt_one(right: str, wrong: str) -> None:
    """A slip does not name the node, however often it is given, or first, where English text has the other spelling."""
    decided = [Decision(right, wrong, "same")]
    for names in ([wrong, right], [wrong] * 5 + [right], [wrong, wrong, f"{wrong}s", right]):
        found = resolved(*names, decisions=decided)
        assert {one.canonical_name for one in found.names if one.name in (right, wrong)} == {right}


def test_a_canonical_name_is_the_more_frequent_spelling_of_an_unknown_word() -> None:
    """Where no text has either, the spelling that the list has more often counts, in other names too."""
    decided = [Decision("Bergqvist Pharma", "Bergqvits Pharma", "same")]
    found = resolved("Bergqvits Pharma", "Bergqvist Pharma", "Bergqvist Tower", decisions=decided)
    assert {one.canonical_name for one in found.names if "Pharma" in one.name} == {"Bergqvist Pharma"}
    often = resolved("the Harbour Commissions", *["Harbour Commission"] * 3)
    assert {one.canonical_name for one in often.names} == {"Harbour Commission"}


class Judge:
    """Answers every question alike, and counts what it gets."""

    def __init__(self, answer: Verdict | None) -> None:
        self.answer = answer
        self.asked: list[Question] = []

    def __call__(self, questions: Sequence[Question]) -> list[Verdict | None]:
        """The answer, once for each."""
        self.asked += questions
        return [self.answer] * len(questions)


TYPED = [NameRecord("Mercury", "planet", context="It is near the sun."), NameRecord("Mercury", "element")]


def test_a_judge_decides_the_review(tmp_path: Path) -> None:
    """It gets names, types and descriptions; its answers merge or separate, and are kept in a file."""
    judge, cache = Judge("same"), tmp_path / "answers.jsonl"
    found = resolved(*TYPED, judge=judge, judge_cache=cache)
    assert len({one.node_id for one in found.names}) == 1
    assert not found.review
    texts = {judge.asked[0].description, judge.asked[0].other_description}
    assert texts == {"It is near the sun.", ""}
    silent = Judge(None)
    again = resolved(*TYPED, judge=silent, judge_cache=cache)
    assert not silent.asked
    assert len({one.node_id for one in again.names}) == 1
    apart = resolved(*TYPED, judge=Judge("different"))
    assert all(one.apart for one in apart.names if one.type == apart.names[0].type)


def test_a_judge_has_a_budget_and_may_pass() -> None:
    """Questions beyond the budget, and those without an answer, stay for a person."""
    names = [NameRecord(name, type_) for name in ("Mercury", "Saturn") for type_ in ("planet", "god")]
    judge = Judge("same")
    found = resolved(*names, judge=judge, judge_budget=1)
    assert (len(judge.asked), len(found.review)) == (1, 1)
    assert len(resolved(*names, judge=Judge(None)).review) == 2


@pytest.mark.parametrize("answers", [[], ["perhaps"]])
def test_a_judge_that_does_not_answer_is_an_error(answers: list[Verdict | None]) -> None:
    """Too few answers and unknown ones are refused."""
    with pytest.raises(ValueError, match="judge"):
        resolved(*TYPED, judge=lambda questions: answers)


def test_names_that_a_collection_knows_get_its_ids(base_store: Path) -> None:
    """A name of the collection has its entity; what it does not know is clustered by itself."""
    with EntityLinker.open("base", store=str(base_store), read_only=True) as linker:
        found = resolve(
            [NameRecord("NYTimes", "ORG"), NameRecord("the New York Times", "planet"), "xylophone"], linker=linker
        )
        assert {one.name: one.entity_id for one in found.names} == {
            "NYTimes": "nyt",
            "the New York Times": "nyt",
            "xylophone": None,
        }
        split = resolve(["NYTimes"], linker=linker, decisions=[
            Decision("NYTimes", "The New York Times", "different", other_node="nyt")
        ])  # fmt: skip
        assert split.names[0].entity_id is None
        same = resolve(["NYTimes", "qqqq"], linker=linker, decisions=[Decision("qqqq", "NYTimes", "same")])
        assert {one.entity_id for one in same.names} == {"nyt"}


def test_the_command_writes_nodes_and_a_review(run: Run, model: Path, tmp_path: Path) -> None:
    """Names in, nodes and a review out; the nodes are read back, changed and added to."""
    names = tmp_path / "names.tsv"
    names.write_text("title\ttype\nheart attack\tdisease\nHeart  Attack\tdisease\nnew york\tplace\n")
    nodes, review = tmp_path / "nodes.tsv", tmp_path / "review.tsv"
    done = run("resolve", str(names), "--out", str(nodes), "--review", str(review), "--set", f"model={model}")
    assert done.status == 0, done.err
    assert "3 names, 2 nodes" in done.err
    assert review.exists()
    again = run("resolve", str(names), "--previous", str(nodes), "--json", "--set", f"model={model}")
    rows = [json.loads(line) for line in again.out.splitlines()]
    assert {row["node_id"] for row in rows} == {one.node_id for one in Resolution.read(nodes).names}
    undone = run("resolve", "--previous", str(nodes), "--undo", "marie curie", "--out", str(nodes))
    assert undone.status == 1
    assert "no name" in undone.err
    assert run("resolve").status == 2
    assert run("resolve", str(names), "--undo", "x").status == 2


@pytest.mark.parametrize(
    "text, names",
    [
        ("heart attack\nNYTimes\n", ["heart attack", "NYTimes"]),
        ("id\tname\n1\tnyc\n", ["nyc"]),
        ('{"entity_name": "nyc", "entity_type": "place"}\n', ["nyc"]),
        ("", []),
    ],
)
def test_files_of_names_have_several_forms(tmp_path: Path, text: str, names: list[str]) -> None:
    """Lines, a table with a header, and JSON Lines are told apart by their first line."""
    path = tmp_path / "names"
    path.write_text(text)
    with path.open("rb") as file:
        assert [record.name for record in read_names(file, str(path))] == names


class Killed(BaseException):
    """A process ends here."""


@pytest.mark.parametrize("files_written", [0, 1, 2], ids=["before the files", "between them", "after them"])
def test_a_run_that_was_killed_is_repeated_over_its_own_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files_written: int
) -> None:
    """A repeated run that reads and writes the same file gives the files of one run; counts are not doubled."""
    nodes, review, expected, pairs = (tmp_path / name for name in ("nodes", "review", "expected", "pairs"))
    resolved("heart attack", "new york", "new york").write(nodes)
    more = "Heart Attack", "heart atack", "new york", "new yorck", "large cat", "large cats", "Kovra", "Kowra"
    resolved(*more, previous=nodes).write(expected, review=pairs)
    assert len(pairs.read_text().splitlines()) > 1
    write, written = resolution.write_lines, 0

    def write_and_die(*arguments: Any) -> None:
        nonlocal written
        if written == files_written:
            raise Killed
        write(*arguments)
        written += 1

    with monkeypatch.context() as patch, suppress(Killed):
        patch.setattr(resolution, "write_lines", write_and_die)
        resolved(*more, previous=nodes).write(nodes, review=review)
    for _ in range(2):
        resolved(*more, previous=nodes).write(nodes, review=review)
        assert nodes.read_text() == expected.read_text()
        assert review.read_text() == pairs.read_text()


def test_other_names_are_counted_after_earlier_ones() -> None:
    """Names of different inputs add up; an input that was given before does not, however long ago."""
    counts = []
    found = None
    for names in (["new york", "new york"], ["new york"], ["new york", "new york"], ["new york", "oslo"]):
        found = resolved(*names, previous=found)
        counts.append({one.name: one.count for one in found.names}["new york"])

    assert counts == [2, 3, 3, 4]
