"""`evaluate --task linking`: the sets, what a ranking earns, the peers by hand, and a whole run on a small base."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from cli_runner import Run

from pearl_qdrant.encoder.loading import load_encoder
from pearl_qdrant.errors import FormatError
from pearl_qdrant.linking.ranking.model import FEATURES, shipped_model
from pearl_qdrant.records import Entity
from training.evaluation.datasets.data import FolderData
from training.evaluation.linking.base import Bases
from training.evaluation.linking.methods import Ablation, Dense, Fusion, Linker
from training.evaluation.linking.peers import peers
from training.evaluation.linking.scores import Ranked, rank
from training.evaluation.linking.sets import Base, LinkingSet, Query, Source, read_joins, read_set
from training.evaluation.linking.task import GROUP, TASKS
from training.evaluation.registry import TASKS as OTHERS
from training.evaluation.registry import find_tasks
from training.evaluation.reports.table import as_text
from training.evaluation.run import evaluate
from training.evaluation.task import EvaluationOptions, LinkingOptions
from training.examples.splits import fold

EVERY_FOLD = LinkingOptions(folds=tuple(range(10)), n_mentions=6, nil_shares=(0.0, 0.5))

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
    """A biomedical base, a general one with pairs, and a fuzzy join of two sets."""
    made = tmp_path / "data"
    tables = {
        "kb/biomedical/doid_2024.tsv": ["id name type aliases category alias_scopes"]
        + [f"{key}\t{name}\tdisease\t{aliases}\t\t{scopes}" for key, name, aliases, scopes in ENTITIES],
        "kb/general.tsv": ["id name onto_type fine_type aliases source"]
        + [f"{key}\t{name}\tORG\tfirm|shop\t{aliases}\ts" for key, name, aliases, _ in ENTITIES],
        "alias_pairs/fb15k_wikidata_alias_pairs.tsv": [
            "alias id canonical",
            "NYC\t1\tNew York",
            "ASA pill\t4\taspirin",
            "gone\t99\tnowhere",
        ],
        "autofj/left.tsv": ["dataset id title", "A\t0\tnew york times", "A\t1\tnew york post", "B\t0\taspirin"],
        "autofj/right.tsv": [
            "dataset id title",
            "A\t0\tNew York Times (paper)",
            "A\t1\tno match",
            "A\t2\tthe new york post",
            "B\t0\taspirins",
        ],
        "autofj/gt.tsv": [
            "dataset id_l title_l id_r title_r",
            "A\t0\tx\t0\ty",
            "A\t1\tx\t2\ty",
            "B\t0\tx\t0\ty",
        ],
    }
    for path, (header, *rows) in tables.items():
        place = made / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text("\n".join([header.replace(" ", "\t"), *rows]) + "\n", encoding="utf-8")
    return made


def ontology(folder: Path, protocol: str, options: LinkingOptions = EVERY_FOLD) -> LinkingSet:
    """The set of the biomedical base."""
    chosen = "canonical" if protocol == "canonical" else "left_out"
    return read_set(FolderData(folder), Source("kb/biomedical/doid*.tsv", None, chosen), options)  # type: ignore[arg-type]


def test_exact_aliases_are_asked_for_against_canonical_names_only(folder: Path) -> None:
    """A RELATED alias is no mention; an escaped bar belongs to its alias; the base has no alias at all."""
    one = ontology(folder, "canonical")

    assert {query.mention for query in one.queries} <= {
        "NYC", "the magazine", "cardiac infarct", "a|b", "ASA pill", "heart city", "united times"
    }  # fmt: skip
    assert len(one.queries) == EVERY_FOLD.n_mentions
    assert all(not entity.aliases for entity in one.base.entities)


def test_own_strings_are_left_out_of_their_entity_alone(folder: Path) -> None:
    """The base has all names; the mention's own one is excluded on its entity."""
    one = ontology(folder, "left_out")
    query = next(query for query in one.queries if query.gold)
    (gold,) = query.gold

    assert query.leaves_out(gold, query.mention)
    assert not query.leaves_out(gold, "another name")
    assert not query.leaves_out("other", query.mention)
    assert any(entity.aliases for entity in one.base.entities)


def test_a_nil_mention_loses_its_entity_with_all_namesakes(folder: Path) -> None:
    """New York and new-york are one name after folding."""
    one = ontology(folder, "canonical", LinkingOptions(folds=EVERY_FOLD.folds, n_mentions=7, nil_shares=(0.0, 0.5)))
    without = {query.mention: twin.without for query, twin in zip(one.queries, one.nil_queries, strict=True)}

    assert len(without) == 7
    assert all(not twin.gold for twin in one.nil_queries)
    assert without["NYC"] == without["the magazine"] == {"1", "2"}
    assert without["ASA pill"] == {"4"}


def test_folds_divide_entities(folder: Path) -> None:
    """An entity's aliases are asked for in the fold of its id, and only there; a fold without one says so."""
    by_fold = {fold(key): {k for k, *_ in ENTITIES if fold(k) == fold(key)} for key, *_ in ENTITIES if key != "5"}
    for number, ids in by_fold.items():
        one = ontology(folder, "canonical", LinkingOptions(folds=(number,)))
        assert {key for query in one.queries for key in query.gold} == ids - {"5"}
    (empty, *_) = sorted(set(range(10)) - by_fold.keys())
    with pytest.raises(FormatError, match=f"folds {empty}"):
        ontology(folder, "canonical", LinkingOptions(folds=(empty,)))


def test_pairs_whose_id_is_not_in_the_base_are_passed_over(folder: Path) -> None:
    """The aliases of a file of pairs, those of entities that are there."""
    source = Source("kb/general.tsv", "alias_pairs/fb15k_wikidata_alias_pairs.tsv", "canonical")

    one = read_set(FolderData(folder), source, EVERY_FOLD)

    assert {query.mention for query in one.queries} == {"NYC", "ASA pill"}
    assert one.base.entities[0].types == ("ORG",)
    assert one.base.entities[0].kb_types == ("firm", "shop")


def test_fuzzy_joins_are_sets_of_their_own(folder: Path) -> None:
    """Right titles with a match against the left titles of their set."""
    first, second = read_joins(FolderData(folder))

    assert [query.mention for query in first.queries] == ["New York Times (paper)", "the new york post"]
    assert [query.gold for query in second.queries] == [frozenset("0")]


def test_tied_firsts_earn_their_share() -> None:
    """One of n tied ones at depth 1; its chance at more."""
    tied = Ranked(("a", "b", "c", "d"), 3)

    assert tied.credit(frozenset("b")) == pytest.approx(1 / 3)
    assert tied.credit(frozenset("b"), 2) == pytest.approx(2 / 3)
    assert tied.credit(frozenset("d"), 2) == 0
    assert tied.credit(frozenset("d"), 4) == 1
    assert Ranked((), 0).credit(frozenset("a")) == 0
    assert rank([("b", 1.0), ("c", 0.5), ("a", 1.0)]) == Ranked(("a", "b", "c"), 2)


@pytest.mark.parametrize("name", ["exact", "rapidfuzz", "tfidf", "lexical"])
def test_peers_find_what_strings_can_find(name: str) -> None:
    """A name in other case and punctuation, unless it is excluded; namesakes are tied."""
    entities = (Entity("1", "Alpha beta"), Entity("2", "gamma delta", ("Alpha beta",)), Entity("3", "unlike"))
    mention = "ALPHA-BETA" if name == "exact" else "alpha beta"
    queries = (
        Query(mention, frozenset("1")),
        Query("Alpha beta", frozenset("1"), loses_string=frozenset("2")),
        Query("Alpha beta", frozenset("1"), without=frozenset({"1", "2"})),
    )
    (peer,) = [peer for peer in peers() if peer.name == name]

    both, one, none = peer.rank(LinkingSet(Base("b", entities), queries, ()))

    assert (both.ids[:2], both.n_tied) == (("1", "2"), 2)
    assert (one.ids[0], one.n_tied) == ("1", 1)
    assert not {"1", "2"} & set(none.ids)


def test_fusion_adds_what_ranks_are_worth() -> None:
    """First and second in two methods beat first in one."""

    class Fixed:
        """A method with one answer."""

        name, offers = "fixed", frozenset({"linking"})

        def __init__(self, *ids: str) -> None:
            self.ids = ids

        def rank(self, one: LinkingSet) -> list[Ranked]:
            return [Ranked(self.ids, 1)]

    methods = [Fixed("a", "b"), Fixed("b", "c")]

    (fused,) = Fusion(methods).rank(LinkingSet(Base("b", ()), (), ()))  # type: ignore[arg-type]

    assert fused == Ranked(("b", "a", "c"), 1)


def test_the_linker_is_measured_beside_its_parts(folder: Path, tmp_path: Path, model: Path) -> None:
    """One run: excluded names are not found, all figures are there, and a kept base is not loaded again."""
    said: list[str] = []
    encoder = load_encoder(str(model), device="cpu")
    tasks = [task for task in TASKS if task.name in ("linking_doid", "linking_autofj")]
    options = EvaluationOptions(linking=EVERY_FOLD)
    with Bases(tmp_path / "bases", say=said.append) as bases:
        linker = Linker(encoder, bases)
        dense = Dense(encoder, bases, name="dense")
        others = [peers()[0], dense, Fusion([dense, peers()[-1]]), Ablation(linker, "lexical")]
        report = evaluate(FolderData(folder), linker, others, tasks, options)
        again = Linker(encoder, bases, name="again").rank(ontology(folder, "canonical"))

    assert len([line for line in said if line.startswith("loading")]) == 3
    assert len(again) == EVERY_FOLD.n_mentions
    joins, canonical = (result.outcomes[linker.name] for result in report.results)
    assert joins.value == 100
    assert {"accuracy_5", "recall_64", "milliseconds", "ece_0%", "auroc_50%", "nil_f1_50%"} <= canonical.details.keys()
    assert canonical.details["recall_64"] == 100, "seven entities are all among 64"
    assert canonical.n == EVERY_FOLD.n_mentions
    assert all(np.isfinite(value) for value in canonical.details.values())
    assert report.results[1].outcomes["exact"].value == 0, "no alias is a canonical name"
    assert "Linking, canonical names only" in as_text(report)


def test_an_ablation_judges_the_same_candidates_by_other_coefficients(folder: Path, model: Path) -> None:
    """Without a feature whose coefficient is 0 nothing changes, tied ones included."""
    encoder = load_encoder(str(model), device="cpu")
    one = ontology(folder, "canonical")
    with Bases(None) as bases:
        linker = Linker(encoder, bases)
        unchanged = Ablation(linker, "wanted_type")  # nobody asked for a type

        assert [a.ids[0] for a in unchanged.rank(one)] == [r.ids[0] for r in linker.rank(one)]
        assert [a.n_tied for a in unchanged.rank(one)] == [r.n_tied for r in linker.rank(one)]


def test_linking_is_asked_for_by_one_name_and_not_run_unasked() -> None:
    """`--task linking` stands for all of its tasks; without `--task` none of them is run."""
    assert find_tasks((GROUP,)) == TASKS
    assert find_tasks(()) == OTHERS
    assert [task.name for task in find_tasks(("linking_go", "bird"))] == ["bird", "linking_go"]


@pytest.mark.parametrize("wrong", [{"folds": (10,)}, {"folds": ()}, {"n_mentions": 0}, {"nil_shares": (1.0,)}])
def test_options_out_of_range_are_refused(wrong: dict[str, object]) -> None:
    """Folds are 0 to 9, a share is less than 1."""
    with pytest.raises(ValueError, match="not"):
        LinkingOptions(**wrong)  # type: ignore[arg-type]


def test_the_command_prints_linking(run: Run, folder: Path, model: Path) -> None:
    """`evaluate --task linking_doid --json` has the figure, its details, peers and ablations."""
    words = ["--data", str(folder), "--model", str(model), "--task", "linking_doid", "--ablation", "--mentions", "3"]
    folds = [word for number in range(10) for word in ("--fold", str(number))]

    done = run("evaluate", *words, *folds, "--nil-share", "0.5", "--json")

    assert done.status == 0, done.err
    task = json.loads(done.out)["tasks"]["linking_doid"]
    assert task["n"] == 3
    assert {"exact", "rapidfuzz", "tfidf", "lexical", "dense", "rrf"} < task["baselines"].keys()
    used = [name for name, value in zip(FEATURES, shipped_model().features, strict=True) if value]
    assert {f"without {name}" for name in used} <= task["baselines"].keys()
    assert "ece_50%" in task["details"]


def test_a_base_of_ones_own_is_linked_by_its_aliases(run: Run, model: Path, tmp_path: Path) -> None:
    """Any base that ingest reads, by both protocols, over all entities; other tasks have nothing to read there."""
    base = tmp_path / "mine.tsv"
    rows = "".join(f"{key}\t{name}\tORG|firm\t{aliases}\n" for key, name, aliases, _ in ENTITIES)
    base.write_text(f"id\tname\ttype\taliases\n{rows}", encoding="utf-8")

    done = run("evaluate", "--data", str(base), "--model", str(model), "--nil-share", "0.5", "--json")
    other = run("evaluate", "--data", str(base), "--task", "bird")

    assert done.status == 0, done.err
    tasks = json.loads(done.out)["tasks"]
    assert tasks.keys() == {"linking_mine", "linking_mine_left_out"}
    assert tasks["linking_mine"]["n"] == 8
    assert other.status == 2
    assert "linking only" in other.err


def test_data_with_nothing_to_measure_is_a_failure(run: Run, model: Path, tmp_path: Path) -> None:
    """A folder that has none of the files is no success with an empty table."""
    done = run("evaluate", "--data", str(tmp_path), "--model", str(model), "--task", "linking")

    assert done.status == 1
    assert "none of the files" in done.err
