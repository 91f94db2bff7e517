"""`evaluate --task everyday`: what users write instead of a linker, cutoffs, figures by kind, and a whole run."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from cli_runner import Run

from pearl_qdrant import Entity
from pearl_qdrant.linking.mention_kinds.make import KINDS, MadeMention
from training.evaluation import linking_methods as everyday
from training.evaluation.linking_methods import (
    Answers,
    ExactNames,
    ExactThenFuzzy,
    Tfidf,
    _Best,
    best_cutoff,
    cut_off,
    everyday_peers,
)
from training.evaluation.linking_sets import Base
from training.evaluation.tasks.linking import as_outcome

BASE = Base(
    "base",
    (
        Entity("mi", "myocardial infarction", ("heart attack",)),
        Entity("ny", "New York", ("Big Apple",)),
        Entity("nys", "New York State", ("new-york",)),
        Entity("asp", "aspirin", ("acetylsalicylic acid",)),
        Entity("th", "thyroiditis"),
    ),
)


@dataclass(frozen=True)
class Asked:
    """A mention with its answer, and names that it must not find."""

    mention: str
    entity_id: str | None = None
    without: tuple[str, ...] = ()

    def excludes(self, entity_id: str, name: str) -> bool:
        return entity_id in self.without or name in self.without


def test_exact_lookup_links_names_of_one_entity() -> None:
    """Case, accents and hyphens make no difference, a name of two entities is NIL, and excluded names are absent."""
    asked = [
        Asked("Heart-Attack"),
        Asked("new york"),
        Asked("new york", without=("new-york",)),
        Asked("heart attack", without=("mi",)),
        Asked("heart attak"),
        Asked(""),
    ]

    assert list(ExactNames().answer(asked, BASE).entity_ids) == ["mi", None, "ny", None, None, None]


@pytest.mark.parametrize("peer", [ExactThenFuzzy("WRatio"), ExactThenFuzzy("ratio"), Tfidf()], ids=lambda one: one.name)
def test_a_similar_name_is_linked_above_the_best_cutoff(peer: Tfidf | ExactThenFuzzy) -> None:
    """Slips are linked and foreign words are not, since that is best on the other half; excluded names are absent."""
    slips = [Asked("heart attakc", "mi"), Asked("aspirrin", "asp"), Asked("myocardal infarction", "mi")]
    foreign = [Asked("xyzzy qqq"), Asked("0 8 15"), Asked("zzz")]
    gone = [Asked("thyroiditis", None, ("th",)), Asked("thyroidits", None, ("th",))]
    asked = [one for one in (*slips, *foreign, *gone) for _ in range(2)]  # one in each half

    assert peer.answer(asked, BASE).entity_ids[::2] == ("mi", "asp", "mi", None, None, None, None, None)
    found = peer.answer(asked, BASE)
    assert len(found.cutoffs) == 2
    assert found.milliseconds > 0


def test_a_name_of_two_entities_is_nil_for_every_peer() -> None:
    """Nobody can say which one is meant."""
    for peer in everyday_peers():
        assert peer.answer([Asked("New York", "ny"), Asked("Aspirin", "asp")] * 2, BASE).entity_ids[0] is None
        assert peer.answer([], BASE).entity_ids == ()


def test_the_best_cutoff_has_the_most_right_minus_wrong() -> None:
    """A wrong link costs one; a link where NIL is right costs two; without a good link nothing is linked."""
    right, wrong, absent = Asked("r", "a"), Asked("w", "b"), Asked("n", None)
    ranked = [(0.9, right), (0.8, absent), (0.7, right), (0.6, right), (0.5, right), (0.4, wrong)]

    best = [_Best(score, "a") for score, _ in ranked]
    assert best_cutoff(best, [mention for _, mention in ranked]) == 0.5
    assert best_cutoff(best[:4], [mention for _, mention in ranked[:4]]) == 0.9
    assert best_cutoff([_Best(0.9, "a"), _Best()], [absent, right]) == float("inf")
    # Names of equal scores are linked together or not at all.
    assert best_cutoff([_Best(0.9, "a"), _Best(0.9, "a"), _Best(0.2, "a")], [right, absent, right]) == float("inf")


def test_each_half_gets_the_cutoff_of_the_other() -> None:
    """No mention takes part in the choice of its own cutoff."""
    right, absent = Asked("r", "a"), Asked("n", None)
    linked, cutoffs = cut_off([_Best(0.9, "a"), _Best(0.5, "a")], [right, right])

    assert (linked, cutoffs) == (("a", None), (0.5, 0.9))
    assert cut_off([_Best(0.9, "a"), _Best(0.5, "a")], [right, absent])[0] == (None, None)


def test_figures_by_kind() -> None:
    """NIL is right where there is no entity; the figure is the mean over the kinds, however many mentions they have."""
    kinds = ["exact", *["alias"] * 4, *["nil removed"] * 2]
    mentions = tuple(MadeMention(kind, "x", None if kind.startswith("nil") else "a") for kind in kinds)
    found = as_outcome(mentions, Answers(("a", "a", "b", None, None, None, "b"), 1.5, (0.5, float("inf"))))

    assert found.value == pytest.approx((100 + 25 + 50) / 3)
    assert found.n == 7
    by_kind = {kind: [found.details[f"{kind}/{one}"] for one in ("n", "right", "wrong", "nil")] for kind in ("alias",)}
    assert by_kind == {"alias": [4, 25, 25, 50]}
    assert [found.details[f"nil removed/{one}"] for one in ("right", "wrong", "nil")] == [50, 50, 50]
    assert found.details["milliseconds"] == 1.5
    assert found.details["cutoff_1"] == 0.5
    assert "cutoff_2" not in found.details
    assert "case/n" not in found.details


def test_a_large_base_has_fewer_mentions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Peers compare each mention with every name, so their time is bounded; a few of each kind are always made."""
    monkeypatch.setattr(everyday, "FEWEST_OF_KIND", 2)
    wide = Base("wide", tuple(Entity(f"e{i}", f"heart disease number{i} of lungs") for i in range(60)))

    def most(limit: int, n_mentions: int = 10 * len(KINDS)) -> int:
        monkeypatch.setattr(everyday, "MAX_COMPARISONS", limit)
        kinds = [one.kind for one in everyday.made_mentions(wide, n_mentions)]
        return max(map(kinds.count, kinds))

    assert [most(10**9), most(60 * 5 * len(KINDS)), most(1)] == [10, 5, 2]
    assert most(10**9, n_mentions=1) == 1


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A base of a user's own."""
    rows = [f"{e.entity_id}\t{e.canonical_name}\t{'|'.join(e.aliases)}" for e in BASE.entities]
    path = tmp_path / "mine.tsv"
    path.write_text("\n".join(["id\tname\taliases", *rows]) + "\n", encoding="utf-8")
    return path


@pytest.mark.slow
def test_a_base_of_ones_own_is_measured_by_kind(run: Run, model: Path, base: Path) -> None:
    """One command shows, for each kind of mention, what the linker and what its alternatives make of it."""
    words = ("evaluate", "--data", str(base), "--model", str(model), "--task", "everyday", "--mentions", "68")
    record = json.loads(run(*words, "--json").out)
    shown = run(*words)

    (task,) = record["tasks"].values()
    assert record["tasks"].keys() == {"everyday_mine"}
    assert list(task["baselines"]) == ["exact", "exact+WRatio", "exact+ratio", "tfidf"]
    for figures in (task, *task["baselines"].values()):
        details = figures["details"]
        assert details["exact/right"] == 100
        for kind in {key.split("/")[0] for key in details if "/" in key}:
            is_nil = kind.startswith("nil")
            parts = [details[f"{kind}/{one}"] for one in ("right", "wrong", *(() if is_nil else ("nil",)))]
            assert sum(parts) == pytest.approx(100, abs=0.02)
    assert "mine, by kind: right, wrong and NIL, in percent" in shown.out
    lines = {line.split("  ")[1]: line for line in shown.out.splitlines() if line.startswith("  ")}
    assert lines["exact"].count("100.0   0.0   0.0") == 5
    assert "milliseconds" in lines
    assert "Details" not in shown.out


def test_other_tasks_need_a_folder(run: Run, base: Path) -> None:
    """A base of one's own has two kinds of tasks; the error names them."""
    found = run("evaluate", "--data", str(base), "--task", "everyday", "--task", "bird")

    assert found.status == 2
    assert "linking and everyday only" in found.err
