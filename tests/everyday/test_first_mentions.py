"""What a new user tries first, on the sample base with the shipped model and the default settings. A mention that is a
name is linked without its vector; the decision is the one that all candidates lead to.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from cli_runner import Run
from edge_cases import copy_files
from pair_table import linked, other_outcomes
from printed_output import assert_shown

from pearl_qdrant import EntityLinker
from pearl_qdrant.encoder.judge import NameJudge
from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.linking.calibration import calibrate, calibrate_collection
from pearl_qdrant.linking.mention_kinds import NamedEntity, NameOwners, make_mentions
from pearl_qdrant.linking.ranking.explain import explain_link
from pearl_qdrant.linking.ranking.scoring import MOST_UNJUDGED

ROOT = Path(__file__).parents[2]
SAMPLE = ROOT / "examples" / "sample_base.tsv"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A place for the store of the README's example."""
    return str(tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="module")
def printed(store: str) -> list[str]:
    """What the Python examples of the README print. The first one loads the sample base."""
    examples = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    output = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(output):
        patch.chdir(ROOT)
        patch.setenv("PEARL_QDRANT_STORE", store)
        for example in examples:
            exec(compile(example, "README.md", "exec"), {})
    return output.getvalue().splitlines()


@pytest.fixture(scope="module")
def linker(store: str, printed: list[str]) -> Iterator[EntityLinker]:
    """A linker over the sample base."""
    with EntityLinker.open("demo", store=store) as opened:
        yield opened


def test_the_python_examples_run_and_answer_right(printed: list[str]) -> None:
    """The README's Python, on the sample base with the shipped model, links each name as it should."""
    assert int(printed[0]) > 1000
    linked = [line.rpartition(" 0.")[0] for line in printed]
    expected = ["Big Apple new-york-city", "heart attack myocardial-infarction", "NYTimes the-new-york-times"]
    assert linked[1:4] == expected
    assert printed[-1] == "nyc"


@pytest.mark.parametrize("page, word", [("linking", "Asking(judge"), ("documents", "context=text")])
def test_examples_of_a_judge_and_of_a_context_show_something(
    page: str, word: str, linker: EntityLinker, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The judge of the docs is asked, and a surname after the whole name is that person."""
    monkeypatch.setenv("PEARL_QDRANT_STORE", store)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / f"{page}.md").read_text("utf-8"), re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(next(one for one in blocks if word in one), f"{page}.md", "exec"), names)

    if page == "linking":
        assert names["asking"].asked == names["asking"].decided > 1
        assert [one.entity_id is None for one in names["links"]] == [True, False, False]
    else:
        assert names["link"].entity_id == "bill-clinton"


@pytest.mark.slow
def test_readme_shows_what_the_commands_print(printed: list[str], store: str, run: Run) -> None:
    """Each command that is shown with its answer gives that answer on the sample base."""
    assert printed
    shown = re.findall(r"^\$ pearl-qdrant (.*)\n((?:.+\n)*?)```", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE)
    assert len(shown) == 2
    for command, answer in shown:
        assert_shown(run(*shlex.split(command), "--store", store).out, answer)


def test_a_sentence_of_everyday_names(linker: EntityLinker) -> None:
    """Companies, not fruit; `offices` is no name; surnames and initials of the famous are theirs."""
    found = linker.annotate("Apple and Google will open offices in NYC and the UK. Einstein never met JFK.")

    assert [(one.text, one.link.entity_id) for one in found] == [
        ("Apple", "apple-inc"),
        ("Google", "google"),
        ("NYC", "new-york-city"),
        ("UK", "united-kingdom"),
        ("Einstein", "albert-einstein"),
        ("JFK", "john-f-kennedy"),
    ]


def test_everyday_mentions_are_linked(linker: EntityLinker) -> None:
    """Homonyms, slips, other spellings and word orders, as anybody would type them; the runner-up is shown."""

    def outcome(mention: str, entity_id: str) -> str:
        assert len(linker.link(mention, limit=10).candidates) > 1
        return linked(linker)(mention, entity_id)

    assert other_outcomes(__file__, "sample base", outcome) == []


def test_a_plain_slip_needs_no_judge(linker: EntityLinker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slip that no other name is near is sure by its spelling, which costs half of a judged mention."""
    judged: list[str] = []
    scores = NameJudge.scores

    def note(judge: NameJudge, pairs: Sequence[tuple[str, str]]) -> npt.NDArray[np.float64]:
        judged.extend(mention for mention, _ in pairs)
        return scores(judge, pairs)

    monkeypatch.setattr(NameJudge, "scores", note)
    slips = {"Albert Enstein": "albert-einstein", "Jonh F. Kennedy": "john-f-kennedy"}
    links = list(linker.link_batch([*slips, "Albert Einstein lawsuit"]))

    assert [one.entity_id for one in links] == [*slips.values(), None]
    assert all(one.probability is not None and one.probability > MOST_UNJUDGED for one in links[:2])
    assert set(judged) == {"Albert Einstein lawsuit"}
    says = [any("judge" in line for line in explain_link(one, linker.calibration)) for one in links]
    assert says == [False, False, True]


@pytest.mark.slow
@pytest.mark.usefixtures("printed")
def test_a_calibration_of_the_sample_base_keeps_its_coverage(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own mentions give a threshold that keeps nearly all links; before, one that lost 93 % of them."""
    monkeypatch.setattr(calibrate, "PER_KIND", 50)
    copy_files(Path(store), tmp_path / "store")  # another linker has it open

    fit = calibrate_collection("demo", store=tmp_path / "store", dry_run=True).fit

    assert fit.after.coverage > 0.95 * fit.before.coverage
    assert fit.calibration.threshold < 0.8


def made_mentions() -> list[str]:
    """Mentions of every kind, and all names that several entities have."""
    rows = [line.split("\t") for line in SAMPLE.read_text("utf-8").splitlines()[1:]]
    entities = [
        NamedEntity(row[0], tuple(dict.fromkeys((row[1], *row[3].split("|")))), tuple(row[2].split("|")))
        for row in rows
    ]
    owners = NameOwners((one.entity_id, name) for one in entities for name in one.names)
    shared = [name for one in entities for name in one.names if len(owners.of_name(name)) > 1]
    made = [one.mention for one in make_mentions(entities, owners, per_kind=30)]
    return [*made, *shared, "n/a", "NA", "42", "", "🎈"]


@pytest.mark.slow
@pytest.mark.parametrize("types, on_tie", [((), "canonical"), (("GPE",), "null"), ((), "first")])
def test_the_decision_is_the_same(linker: EntityLinker, types: tuple[str, ...], on_tie: str) -> None:
    """Of every kind of mention: entity, probability, reason and rule."""
    mentions = made_mentions()
    quick = list(linker.link_batch(mentions, types=types, on_tie=on_tie))
    whole = list(linker.link_batch(mentions, types=types, on_tie=on_tie, limit=10))

    assert sum(one.rule is not None for one in quick) > 100
    for one, other in zip(quick, whole, strict=True):
        assert one.probability == pytest.approx(other.probability, abs=1e-6)
        named = [candidate.entity_id for candidate in one.candidates]
        assert named == [candidate.entity_id for candidate in other.candidates][: len(named)]
        same = {"probability": one.probability, "candidates": one.candidates}
        assert replace(other, **same) == one


@pytest.mark.parametrize(
    "aliases", [[], ["Hongrie"], ["Hongrie", "Ungarn", "Hungría", "Ungheria", "Węgry", "Hongarije"]]
)
def test_names_in_other_languages_do_not_hide_a_slip(shipped: Encoder, aliases: list[str]) -> None:
    """The name that is compared is the one that speaks for the entity most, not the one with the nearest vector."""
    rows = [
        {"id": "HUN", "name": "Hungary", "aliases": aliases},
        {"id": "HKG", "name": "Hong Kong"},
        {"id": "AUT", "name": "Austria", "aliases": ["Autriche", "Österreich"]},
    ]
    with EntityLinker.build(rows, model=shipped) as linker:
        link = linker.link("Hongary")

    assert (link.entity_id, link.candidates[0].name) == ("HUN", "Hungary")
    assert link.probability is not None
    assert link.probability > 0.95


def test_no_name_is_more_probable_than_an_exact_one(linker: EntityLinker) -> None:
    """A slip reads no more certain than the name itself. Siblings and unknown names have no entity."""
    for mention in ("hepatitis Z", "type 9 diabetes", "Quetzaltenango Municipal Brass Band"):
        assert linker.link(mention).entity_id is None
    exact, slip = linker.link("Albert Einstein"), linker.link("Albert Einstien")

    assert exact.entity_id == slip.entity_id
    assert exact.probability == pytest.approx(0.985, abs=1e-3)
    assert slip.probability is not None
    assert 0.9 < slip.probability <= 0.985
