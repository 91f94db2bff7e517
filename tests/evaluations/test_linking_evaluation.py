"""`evaluate --task linking`: sets, rankings, the peers by hand, and a whole run on a small base."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from cli_runner import Run
from evaluation_data import write_table

from pearl_qdrant import evaluate_model
from pearl_qdrant.encoder.loading import load_encoder
from pearl_qdrant.errors import FormatError
from pearl_qdrant.linking.mention_kinds import KINDS, MadeMention
from pearl_qdrant.records import Entity
from training.evaluation import linking_methods as everyday
from training.evaluation.data import FolderData
from training.evaluation.linking_methods import (
    Answers,
    Dense,
    ExactNames,
    ExactThenFuzzy,
    Linker,
    LoadedBases,
    Tfidf,
    _Best,
    best_cutoff,
    cut_off,
    everyday_peers,
    peers,
)
from training.evaluation.linking_sets import (
    Base,
    LinkingSet,
    MentionQuery,
    Protocol,
    Ranking,
    rank_entities,
    read_joins,
    read_set,
)
from training.evaluation.run import as_record, evaluate, report_as_text
from training.evaluation.tasks import TASKS as OTHERS
from training.evaluation.tasks import find_tasks
from training.evaluation.tasks.linking import LINKING, LINKING_TASKS, as_outcome
from training.examples.example import split_of
from training.options import EvaluationOptions

EVERY_SPLIT = EvaluationOptions(splits=tuple(range(10)), n_mentions=6, nil_shares=(0.0, 0.5))

ENTITIES = [
    ("1", "New York", "Big Apple|NYC", "RELATED|EXACT"),
    ("2", "new-york", "the magazine", "EXACT"),
    ("3", "heart attack", "cardiac infarct|a\\|b", "EXACT|EXACT"),
    ("4", "aspirin", "ASA pill", "EXACT"),
    ("5", "post office", "", ""),
    ("6", "city of heart", "heart city", "EXACT"),
    ("7", "times united", "united times", "EXACT"),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a biomedical base, a general base with pairs, and two fuzzy joins."""
    made = tmp_path / "data"
    rows: list[tuple[object, ...]] = [
        (key, name, "disease", aliases, "", scopes) for key, name, aliases, scopes in ENTITIES
    ]
    write_table(made, "kb/biomedical/doid_2024.tsv", "id name type aliases category alias_scopes", rows)
    rows = [(key, name, "ORG", "firm|shop", aliases, "s") for key, name, aliases, _ in ENTITIES]
    write_table(made, "kb/general.tsv", "id name onto_type fine_type aliases source", rows)
    rows = [("NYC", 1, "New York"), ("ASA pill", 4, "aspirin"), ("gone", 99, "nowhere")]
    write_table(made, "alias_pairs/fb15k_wikidata_alias_pairs.tsv", "alias id canonical", rows)
    rows = [("A", 0, "new york times"), ("A", 1, "new york post"), ("B", 0, "aspirin")]
    write_table(made, "autofj/left.tsv", "dataset id title", rows)
    rows = [
        ("A", 0, "New York Times (paper)"),
        ("A", 1, "no match"),
        ("A", 2, "the new york post"),
        ("B", 0, "aspirins"),
    ]
    write_table(made, "autofj/right.tsv", "dataset id title", rows)
    rows = [("A", 0, "x", 0, "y"), ("A", 1, "x", 2, "y"), ("B", 0, "x", 0, "y")]
    write_table(made, "autofj/gt.tsv", "dataset id_l title_l id_r title_r", rows)
    return made


def ontology(folder: Path, protocol: Protocol, options: EvaluationOptions = EVERY_SPLIT) -> LinkingSet:
    """The set of the biomedical base."""
    return read_set(FolderData(folder), "kb/biomedical/doid*.tsv", table=None, protocol=protocol, options=options)


def test_aliases_are_linked_to_a_base_without_them(folder: Path) -> None:
    """RELATED aliases are not mentions, and an escaped bar is part of an alias. The base has no aliases, or all but the
    mention's own string on its entity. A NIL mention excludes its entity and all namesakes: New York and new-york.
    """
    whole = EvaluationOptions(splits=EVERY_SPLIT.splits, n_mentions=7)
    one, left_out = ontology(folder, "canonical", whole), ontology(folder, "left_out")
    query = next(query for query in left_out.queries if query.gold)
    (gold,) = query.gold
    excluded = {query.mention: twin.excluded for query, twin in zip(one.queries, one.nil_queries, strict=True)}

    assert excluded.keys() == {
        "NYC", "the magazine", "cardiac infarct", "a|b", "ASA pill", "heart city", "united times"
    }  # fmt: skip
    assert len(left_out.queries) == EVERY_SPLIT.n_mentions
    assert all(not entity.aliases for entity in one.base.entities)
    assert any(entity.aliases for entity in left_out.base.entities)
    assert query.excludes(gold, query.mention)
    assert not query.excludes(gold, "another name")
    assert not query.excludes("other", query.mention)
    assert all(not twin.gold for twin in one.nil_queries)
    assert excluded["NYC"] == excluded["the magazine"] == {"1", "2"}
    assert excluded["ASA pill"] == {"4"}


def test_splits_divide_entities(folder: Path) -> None:
    """An entity's aliases are mentions in the split of its id only; a split without mentions is an error."""
    by_split: dict[int, set[str]] = {}
    for key, *_ in ENTITIES:
        if key != "5":  # which has no alias
            by_split.setdefault(split_of(key), set()).add(key)
    for number, ids in by_split.items():
        one = ontology(folder, "canonical", EvaluationOptions(splits=(number,)))
        assert {key for query in one.queries for key in query.gold} == ids
    (empty, *_) = sorted(set(range(10)) - by_split.keys())
    with pytest.raises(FormatError, match=f"splits {empty}"):
        ontology(folder, "canonical", EvaluationOptions(splits=(empty,)))


def test_pairs_and_fuzzy_joins_are_sets_too(folder: Path) -> None:
    """Of pairs only aliases of entities in the base are mentions; right titles with a match are linked to left ones."""
    table = "alias_pairs/fb15k_wikidata_alias_pairs.tsv"
    one = read_set(FolderData(folder), "kb/general.tsv", table=table, protocol="canonical", options=EVERY_SPLIT)
    first, second = read_joins(FolderData(folder))

    assert {query.mention for query in one.queries} == {"NYC", "ASA pill"}
    assert (one.base.entities[0].types, one.base.entities[0].kb_types) == (("ORG",), ("firm", "shop"))
    assert [query.mention for query in first.queries] == ["New York Times (paper)", "the new york post"]
    assert [query.gold for query in second.queries] == [frozenset("0")]


def test_tied_entities_share_the_point() -> None:
    """One of n tied entities counts 1/n at depth 1, and its probability at greater depth."""
    tied = Ranking(("a", "b", "c", "d"), 3)

    assert tied.expected_accuracy(frozenset("b")) == pytest.approx(1 / 3)
    assert tied.expected_accuracy(frozenset("b"), 2) == pytest.approx(2 / 3)
    assert tied.expected_accuracy(frozenset("d"), 2) == 0
    assert tied.expected_accuracy(frozenset("d"), 4) == 1
    assert Ranking((), 0).expected_accuracy(frozenset("a")) == 0
    assert rank_entities([("b", 1.0), ("c", 0.5), ("a", 1.0)]) == Ranking(("a", "b", "c"), 2)
    assert rank_entities([]) == Ranking((), 0)


@pytest.mark.parametrize("name", ["exact", "rapidfuzz", "tfidf"])
def test_peers_find_similar_strings(name: str) -> None:
    """They find a name in another case and punctuation unless it is excluded; namesakes are tied."""
    entities = (Entity("1", "Alpha beta"), Entity("2", "gamma delta", ("Alpha beta",)), Entity("3", "unlike"))
    mention = "ALPHA-BETA" if name == "exact" else "alpha beta"
    queries = (
        MentionQuery(mention, frozenset("1")),
        MentionQuery("Alpha beta", frozenset("1"), excluded_string=frozenset("2")),
        MentionQuery("Alpha beta", frozenset("1"), excluded=frozenset({"1", "2"})),
    )
    (peer,) = [peer for peer in peers() if peer.name == name]

    both, one, none = peer.rank(LinkingSet(Base("b", entities), queries, ()))

    assert (both.ids[:2], both.n_tied) == (("1", "2"), 2)
    assert (one.ids[0], one.n_tied) == ("1", 1)
    assert not {"1", "2"} & set(none.ids)


@pytest.mark.slow
def test_the_linker_is_measured_with_its_parts(folder: Path, model: Path) -> None:
    """Excluded names are not found, the report has all figures, and a base is not loaded again."""
    lines: list[str] = []
    encoder = load_encoder(str(model), device="cpu")
    tasks = [task for task in LINKING_TASKS if task.name in ("linking_doid", "linking_autofj")]
    with LoadedBases(progress=lines.append) as bases:
        linker = Linker(encoder, bases)
        others = [peers()[0], Dense(encoder, bases, name="dense")]
        report = evaluate(FolderData(folder), linker, others, tasks, EVERY_SPLIT)
        again = Linker(encoder, bases, name="again").rank(ontology(folder, "canonical"))

    assert len([line for line in lines if line.startswith("loading")]) == 3
    assert len(again) == EVERY_SPLIT.n_mentions
    joins, canonical = (result.outcomes[linker.name] for result in report.results)
    assert joins.value == 100
    assert {"accuracy_5", "recall_64", "milliseconds", "ece_0%", "auroc_50%", "nil_f1_50%"} <= canonical.details.keys()
    assert canonical.details["recall_64"] == 100, "seven entities are all among 64"
    assert canonical.n == EVERY_SPLIT.n_mentions
    assert all(np.isfinite(value) for value in canonical.details.values())
    assert report.results[1].outcomes["exact"].value == 0, "no alias is a canonical name"
    assert "Linking, canonical names only" in report_as_text(report)


def test_one_name_selects_all_linking_tasks_which_do_not_run_by_default() -> None:
    """`--task linking` selects all of them; without `--task`, none of them runs."""
    assert find_tasks((LINKING,)) == LINKING_TASKS
    assert find_tasks(()) == OTHERS
    assert [task.name for task in find_tasks(("linking_go", "bird"))] == ["bird", "linking_go"]


def test_a_base_of_your_own_is_linked_by_its_aliases(run: Run, model: Path, tmp_path: Path) -> None:
    """Both protocols run on all entities of any base that ingest reads; other tasks, and no data, are errors."""
    base = tmp_path / "mine.tsv"
    rows = "".join(f"{key}\t{name}\tORG|firm\t{aliases}\n" for key, name, aliases, _ in ENTITIES)
    base.write_text(f"id\tname\ttype\taliases\n{rows}", encoding="utf-8")

    done = run("evaluate", "--data", str(base), "--model", str(model), "--json")
    other = run("evaluate", "--data", str(base), "--task", "bird")

    assert done.status == 0, done.err
    tasks = json.loads(done.out)["tasks"]
    assert tasks.keys() == {"linking_mine", "linking_mine_left_out"}
    assert tasks["linking_mine"]["n"] == 8
    assert tasks["linking_mine"]["baselines"].keys() == {"exact", "rapidfuzz", "tfidf", "dense"}
    assert "ece_50%" in tasks["linking_mine"]["details"]
    assert other.status == 2
    assert "linking and everyday only" in other.err
    (tmp_path / "empty").mkdir()
    done = run("evaluate", "--data", str(tmp_path / "empty"), "--model", str(model), "--task", "linking")
    assert (done.status, "none of the files" in done.err) == (1, True)


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


def ask(mention: str, entity_id: str | None = None, *without: str) -> MadeMention:
    """A mention with its answer, and entities that it must not find."""
    return MadeMention("alias", mention, entity_id, frozenset(map(hash, without)))


def test_exact_lookup_links_names_of_one_entity() -> None:
    """Case, accents and hyphens make no difference, and excluded names are absent. For every peer a name of two
    entities is NIL: nobody can say which one is meant.
    """
    asked = [ask("Heart-Attack"), ask("new york"), ask("new york", None, "nys")]
    asked += [ask("heart attack", None, "mi"), ask("heart attak"), ask("")]

    assert list(ExactNames().answer(asked, BASE).entity_ids) == ["mi", None, "ny", None, None, None]
    for peer in everyday_peers():
        assert peer.answer([ask("New York", "ny"), ask("Aspirin", "asp")] * 2, BASE).entity_ids[0] is None
        assert peer.answer([], BASE).entity_ids == ()


@pytest.mark.parametrize("peer", [ExactThenFuzzy("WRatio"), ExactThenFuzzy("ratio"), Tfidf()], ids=lambda one: one.name)
def test_a_similar_name_is_linked_above_the_best_cutoff(peer: Tfidf | ExactThenFuzzy) -> None:
    """Slips are linked and foreign words are not, since that is best on the other half; excluded names are absent."""
    slips = [ask("heart attakc", "mi"), ask("aspirrin", "asp"), ask("myocardal infarction", "mi")]
    foreign = [ask("xyzzy qqq"), ask("0 8 15"), ask("zzz")]
    gone = [ask("thyroiditis", None, "th"), ask("thyroidits", None, "th")]
    asked = [one for one in (*slips, *foreign, *gone) for _ in range(2)]  # one in each half

    assert peer.answer(asked, BASE).entity_ids[::2] == ("mi", "asp", "mi", None, None, None, None, None)
    found = peer.answer(asked, BASE)
    assert len(found.cutoffs) == 2
    assert found.milliseconds > 0


def test_the_best_cutoff_has_the_most_right_minus_wrong() -> None:
    """A wrong link costs one; a link where NIL is right costs two; without a good link nothing is linked. No mention
    takes part in the choice of its own cutoff: each half gets that of the other.
    """
    right, wrong, absent = ask("r", "a"), ask("w", "b"), ask("n", None)
    ranked = [(0.9, right), (0.8, absent), (0.7, right), (0.6, right), (0.5, right), (0.4, wrong)]

    best = [_Best(score, "a") for score, _ in ranked]
    assert best_cutoff(best, [mention for _, mention in ranked]) == 0.5
    assert best_cutoff(best[:4], [mention for _, mention in ranked[:4]]) == 0.9
    assert best_cutoff([_Best(0.9, "a"), _Best()], [absent, right]) == float("inf")
    assert cut_off([_Best(0.9, "a"), _Best(0.5, "a")], [right, right]) == (("a", None), (0.5, 0.9))
    assert cut_off([_Best(0.9, "a"), _Best(0.5, "a")], [right, absent])[0] == (None, None)
    # Names of equal scores are linked together or not at all.
    assert best_cutoff([_Best(0.9, "a"), _Best(0.9, "a"), _Best(0.2, "a")], [right, absent, right]) == float("inf")


def test_figures_by_kind() -> None:
    """NIL is right where there is no entity; the figure is the mean over the kinds, however many mentions they have."""
    kinds = ["exact", *["alias"] * 4, *["nil removed"] * 2]
    mentions = tuple(MadeMention(kind, "x", None if kind.startswith("nil") else "a") for kind in kinds)
    found = as_outcome(mentions, Answers(("a", "a", "b", None, None, None, "b"), 1.5, (0.5, float("inf"))))

    assert found.value == pytest.approx((100 + 25 + 50) / 3)
    assert found.n == 7
    assert [found.details[f"alias/{one}"] for one in ("n", "right", "wrong", "nil")] == [4, 25, 25, 50]
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


@pytest.mark.slow
def test_a_base_of_ones_own_is_measured_by_kind(model: Path, tmp_path: Path) -> None:
    """A report shows, for each kind of mention, what the linker and what its alternatives make of it."""
    base = tmp_path / "mine.tsv"
    rows = [f"{e.entity_id}\t{e.canonical_name}\t{'|'.join(e.aliases)}\n" for e in BASE.entities]
    base.write_text("id\tname\taliases\n" + "".join(rows), encoding="utf-8")
    report = evaluate_model(str(base), str(model), tasks=["everyday"], options=EvaluationOptions(n_mentions=68))
    record, shown = as_record(report), report_as_text(report)

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
    assert "mine, by kind: right, wrong and NIL, in percent" in shown
    lines = {line.split("  ")[1]: line for line in shown.splitlines() if line.startswith("  ")}
    assert lines["exact"].count("100.0   0.0   0.0") == 5
    assert "milliseconds" in lines
    assert "Details" not in shown
