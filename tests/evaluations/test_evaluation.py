"""The evaluation: each task by hand on tiny data, the comparisons, the report and the command."""

from __future__ import annotations

import importlib.util
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_runner import Run
from sklearn.metrics import f1_score, normalized_mutual_info_score

from pearl_qdrant.encoder.protocol import Encoded, ModelInfo
from pearl_qdrant.errors import FormatError, OptionError, SettingsError
from pearl_qdrant.phrase_types import ENTITY_TYPES, PHRASE_TYPES
from training.evaluation.bootstrap import paired_bootstrap
from training.evaluation.datasets.data import FolderData
from training.evaluation.datasets.hub import HubData
from training.evaluation.evaluate_model import evaluate_model
from training.evaluation.methods import EncoderMethod, Similarity
from training.evaluation.outcome import Outcome, mean_outcome, nmi_outcome, pearson_outcome
from training.evaluation.registry import ON_REQUEST, TASKS, find_tasks
from training.evaluation.reports.table import as_text, short_names
from training.evaluation.run import Report, as_record, evaluate
from training.evaluation.strings import StringMethod
from training.evaluation.task import EvaluationOptions
from training.evaluation.tasks.entity_types import balanced_names, held_out_names
from training.evaluation.tasks.number_names import training_keys, unseen_number_names
from training.evaluation.tasks.probe import probe, split_rows
from training.evaluation.tasks.retrieval import dictionary
from training.evaluation.tasks.type_scores import score_predictions
from training.evaluation.tasks.typos import one_edit
from training.examples.numbers import number_names
from training.examples.splits import fold, name_key

OPTIONS = EvaluationOptions(n_seeds=2, n_distractors=3, max_epochs=2)


class Letters:
    """An encoder whose vectors count letters; the type is PERSON where a name has an x, else ORG."""

    def __init__(self, *, has_head: bool = True) -> None:
        self.calls: list[str] = []
        self.info = ModelInfo("letters", "sha256:0", 27, "mean", "", has_head, "cpu", "fp32", "onnx")

    def encode(self, names: Sequence[str]) -> Encoded:
        self.calls += names
        vectors = np.zeros((len(names), 27), dtype=np.float32)
        for row, name in zip(vectors, names, strict=True):
            for letter in name.casefold():
                row[ord(letter) - 97 if letter.isascii() and letter.isalpha() else 26] += 1
        vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
        types = np.zeros((len(names), len(PHRASE_TYPES)), dtype=np.float32)
        for row, name in zip(types, names, strict=True):
            kind = "PERSON" if "x" in name else "ORG"
            # Spread over two classes: neither is the largest label, their sum is.
            row[PHRASE_TYPES.index(f"NP-{kind}")] = row[PHRASE_TYPES.index(f"PP-{kind}")] = 0.3
            row[PHRASE_TYPES.index("NP-LAW")] = 0.4
        return Encoded(vectors, np.any(vectors, axis=1), types if self.info.has_head else None)


def write(folder: Path, path: str, header: str, rows: Sequence[Sequence[object]]) -> None:
    """A table of the layout."""
    place = folder / path
    place.parent.mkdir(parents=True, exist_ok=True)
    lines = [header.replace(" ", "\t"), *("\t".join(map(str, row)) for row in rows)]
    place.write_text("\n".join(lines) + "\n", encoding="utf-8")


def words(n: int, seed: int = 0) -> list[str]:
    """Made-up names."""
    rng = random.Random(seed)
    return ["".join(rng.choice("abcdefghij") for _ in range(9)) for _ in range(n)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a little of everything but PPDB-filtered, UMLS and BC5CDR."""
    made = tmp_path / "data"
    names = words(60)
    pairs = [(a, a[::-1], "pos", "1") for a in names] + [
        (a, "zzzz " + "yxw" * (i % 3 + 1), "neg", "") for i, a in enumerate(names)
    ]
    write(made, "pearl_bench/ppdb.tsv", "phrase1 phrase2 label ppdb_score", pairs)
    write(
        made,
        "pearl_bench/turney.tsv",
        "query answer component1 component2 distractor1 distractor2 distractor3 distractor4",
        [("abc", "cab", "a", "b", "xyz", "uvw", "klm", "zzz"), ("xyz", "klm", "x", "y", "zyx", "abc", "def", "ghi")],
    )
    write(
        made,
        "pearl_bench/bird.tsv",
        "term1 term2 relatedness",
        [("abc", "cba", 1.0), ("abc", "abz", 0.6), ("abc", "xyz", 0.0), ("ab", "ac", 0.5)],
    )
    write(made, "pearl_bench/yago_test.tsv", "mention canonical", [("abcd", "dcba"), ("xyz", "qqq")])
    write(
        made,
        "kb/general.tsv",
        "id name onto_type fine_type aliases source",
        [(i, name, "GPE", "", "", "s") for i, name in enumerate(["dcba", "zyx", "mno", "mno", "ppp", "rst"])],
    )
    mentions = [("test", i, "PER", "aab" * (i % 3 + 1)) for i in range(9)] + [
        ("test", i, "LOC", "xxy") for i in range(9)
    ]
    mentions += [("test", i, "ORG", "klm") for i in range(9)] + [("test", 0, "MISC", "qqq"), ("train", 0, "PER", "zzz")]
    write(made, "pearl_bench/conll2003.tsv", "split sent_id type mention", mentions)
    write(
        made,
        "autofj/left.tsv",
        "dataset id title",
        [("A", 0, "abcd"), ("A", 1, "wxyz"), ("B", 0, "hello"), ("B", 1, "other")],
    )
    write(
        made,
        "autofj/right.tsv",
        "dataset id title",
        [
            ("A", 0, "dcba"),
            ("A", 1, "zyxw"),
            ("A", 2, "unmatched"),
            ("A", 3, "wxy"),
            ("B", 0, "olleh"),
            ("B", 1, "hell"),
        ],
    )
    write(
        made,
        "autofj/gt.tsv",
        "dataset id_l title_l id_r title_r",
        [
            ("A", 0, "abcd", 0, "dcba"),
            ("A", 1, "wxyz", 1, "zyxw"),
            ("A", 0, "abcd", 3, "wxy"),
            ("B", 1, "other", 0, "olleh"),
            ("B", 0, "hello", 1, "hell"),
        ],
    )
    texts = [
        ("test", f"{a} {b}" + " more" * (i % 2 * 10), i % 3)
        for i, (a, b) in enumerate(zip(words(90, 1), words(90, 2), strict=True))
    ]
    write(made, "tweets/sentiment.tsv", "split text label", texts)
    intents = [
        (s, text, ("atis_flight", "atis_airfare", "atis_meal")[i % 3], "O") for i, (s, text, _) in enumerate(texts)
    ]
    write(made, "intent/atis.tsv", "split text intent slots_bio", intents)
    typed = [
        (name + ("x" if i % 2 else ""), "PERSON" if i % 2 else "ORG", "s", 1) for i, name in enumerate(words(400, 3))
    ]
    write(made, "typed_names/onto_typed_names.tsv", "name onto_type sources n_types_for_name", typed)
    return made


def run_tasks(folder: Path, *names: str, baselines: Sequence[Similarity] = ()) -> Report:
    """A report of some tasks, or of all."""
    return evaluate(FolderData(folder), EncoderMethod(Letters()), baselines, find_tasks(names), OPTIONS)


def outcome(folder: Path, task: str) -> Outcome:
    """What the letters encoder gets."""
    (result,) = run_tasks(folder, task).results
    return result.outcomes["letters"]


def test_turney_is_the_share_of_answers_closer_than_every_distractor(folder: Path) -> None:
    """The first query's answer is nearest, the second's is not."""
    assert outcome(folder, "turney").values == (50,)


def test_equal_choices_share_the_credit(folder: Path) -> None:
    """A method that sees no difference gets what guessing would: nothing for being first in the file."""
    write(
        folder,
        "pearl_bench/turney.tsv",
        "query answer distractor1 distractor2 distractor3 distractor4",
        [("abc", "xyzw", "uvwx", "klmn", "zzzz", "qrst")],
    )
    report = evaluate(FolderData(folder), StringMethod("jaccard"), [], find_tasks(("turney",)), OPTIONS)

    assert report.results[0].outcomes["jaccard"].value == pytest.approx(20)


def test_bird_is_pearsons_correlation(folder: Path) -> None:
    """The figure is numpy's correlation of cosines and judgements."""
    method = EncoderMethod(Letters())
    rows = FolderData(folder).rows("pearl_bench/bird.tsv", "term1", "term2", "relatedness")
    cosines = method.pair_scores([r[0] for r in rows], [r[1] for r in rows])

    expected = 100 * np.corrcoef(cosines, [float(r[2]) for r in rows])[0, 1]
    assert outcome(folder, "bird").value == pytest.approx(expected)


def test_retrieval_is_exact_among_the_canonicals_and_the_bases_names(folder: Path) -> None:
    """One mention finds its canonical name, the other a base's name; the details tell how many there were."""
    found = outcome(folder, "yago_local")

    assert found.values == (50.0,)
    assert found.details["n_names"] == 5


def test_a_dictionary_is_seeded_distinct_and_bounded(folder: Path) -> None:
    """Canonical names are always in, other names up to the limit, none twice, in the same order each time."""
    data = FolderData(folder)
    names = dictionary(data, ["dcba", "qqq"], "kb/general.tsv", 2)

    assert len(names) == len(set(names)) == 4
    assert {"dcba", "qqq"} <= set(names) <= {"dcba", "qqq", "zyx", "mno", "ppp", "rst"}
    assert names == dictionary(data, ["dcba", "qqq"], "kb/general.tsv", 2)
    assert len(dictionary(data, ["dcba"], "kb/biomedical/*.tsv", 5)) == 1


def test_clustering_takes_the_test_split_and_the_three_types(folder: Path) -> None:
    """Mentions of three types that share no letter fall into their clusters; MISC and train do not count."""
    found = outcome(folder, "conll")

    assert found.n == 27
    assert found.value == pytest.approx(100)
    assert len(found.values) == 2


def test_autofj_is_the_mean_over_sets_of_matched_titles(folder: Path) -> None:
    """Two of three in one set and one of two in the other; the title without a match is left out."""
    found = outcome(folder, "autofj")

    assert found.value == pytest.approx((200 / 3 + 50) / 2)
    assert found.n == 5
    assert found.details["n_sets"] == 2


def test_typos_tell_the_fall(folder: Path) -> None:
    """The task with typos says what the figure was without, and by how much it fell."""
    found = outcome(folder, "autofj_typos")

    assert found.details["without_typos"] == pytest.approx(outcome(folder, "autofj").value)
    assert found.details["fall"] == pytest.approx(found.details["without_typos"] - found.value)


@pytest.mark.parametrize("name", ["a", "ab", "aa", "Zürich", "東京", " x ", "The New York Times"])
def test_an_edit_always_changes_the_name_by_one_character(name: str) -> None:
    """No edit gives back the name or nothing; the length changes by one at most."""
    for seed in range(200):
        edited = one_edit(name, random.Random(seed))
        assert edited != name
        assert edited.strip()
        assert abs(len(edited) - len(name)) <= 1
    assert one_edit("", random.Random(0)) == ""


def test_a_probe_learns_what_can_be_learned_and_repeats_itself() -> None:
    """Two clouds are told apart, noise is not, and a seed gives the same result twice."""
    import torch

    generator = torch.Generator().manual_seed(0)
    features = torch.randn(300, 8, generator=generator)
    noise = np.random.default_rng(0).integers(0, 2, 300)
    labels = (features[:, 0] > 0).long().numpy()
    split = split_rows(range(300), np.random.default_rng(0))
    credit = probe(features, labels, split, seed=1, max_epochs=20)

    assert credit.mean() > 0.8
    assert 0.2 < probe(features, noise, split, seed=1, max_epochs=20).mean() < 0.8
    assert np.array_equal(credit, probe(features, labels, split, seed=1, max_epochs=20))


def test_a_split_keeps_groups_whole() -> None:
    """No group lies on two sides, every row is somewhere, and the shares are as stated."""
    groups = [f"g{i // 2}" for i in range(400)]
    split = split_rows(groups, np.random.default_rng(0))
    parts = [{groups[i] for i in rows.tolist()} for rows in (split.train, split.validation, split.test)]

    assert sorted(np.concatenate([split.train, split.validation, split.test]).tolist()) == list(range(400))
    assert [len(part) for part in parts] == [140, 30, 30]
    assert not parts[0] & parts[1] | parts[0] & parts[2] | parts[1] & parts[2]
    tiny = split_rows("abc", np.random.default_rng(0))
    assert [len(rows) for rows in (tiny.train, tiny.validation, tiny.test)] == [1, 1, 1]
    with pytest.raises(ValueError, match="2 distinct"):
        split_rows("abab", np.random.default_rng(0))


def test_reversed_pairs_leak_by_rows_and_not_by_pair(folder: Path) -> None:
    """Random labels on pairs in both directions: only a split by rows can have them learnt by heart."""
    rng = random.Random(0)
    pairs = [(a, b, rng.choice(["pos", "neg"])) for a, b in zip(words(300, 5), words(300, 6), strict=True)]
    both = [row for a, b, label in pairs for row in ((a, b, label), (b, a, label))]
    write(folder, "pearl_bench/ppdb.tsv", "phrase1 phrase2 label", both)

    groups = [frozenset(row[:2]) for row in both]
    split = split_rows(groups, np.random.default_rng(0))
    trained = {groups[i] for i in split.train.tolist()}
    assert not trained & {groups[i] for i in split.test.tolist()}
    by_pair = outcome(folder, "ppdb_by_pair")
    assert 30 < by_pair.value < 70


def test_types_are_the_marginal_over_lexical_classes(folder: Path) -> None:
    """The head's largest single label is LAW, the largest sum is right."""
    found = outcome(folder, "types_natural")

    assert found.value == 100
    assert found.details["macro_f1"] == 100
    assert found.n == len(held_out_names(FolderData(folder)))


def test_only_names_of_the_test_fold_are_asked(folder: Path) -> None:
    """Names of other folds, and those that training's rules make, are left out."""
    write(
        folder,
        "typed_names/onto_typed_names.tsv",
        "name onto_type",
        [(f"{a} {i}", "ORG") for i, a in enumerate(words(50))]
        + [(f"{y}", "DATE") for y in range(1000, 2000)]
        + [("45%", "PERCENT")],
    )
    names = held_out_names(FolderData(folder))

    assert names
    assert all(fold(name_key(name)) == 9 for name, _ in names)
    assert all(kinds == {"ORG"} for _, kinds in names)


def test_rules_for_thin_types_share_no_name_with_trainings_rules() -> None:
    """At least 200 names each of MONEY, ORDINAL, PERCENT and TIME, none with a key that training could have seen."""
    made = unseen_number_names(200, random.Random(0), seen=training_keys())
    other_draw = {name_key(name) for name, _ in number_names(5_000, random.Random(7))}

    assert set(made) == {"MONEY", "ORDINAL", "PERCENT", "TIME"}
    for names in made.values():
        assert len(names) >= 100
        assert len({name_key(name) for name in names}) == len(names)
        assert not other_draw & {name_key(name) for name in names}


def test_a_balanced_sample_fills_thin_types(folder: Path) -> None:
    """The four types that rules make are there though the list has none of them."""
    chosen = balanced_names(held_out_names(FolderData(folder)), random.Random(0))
    kinds = [kind for _, found in chosen for kind in found]

    assert all(kinds.count(kind) >= 100 for kind in ("MONEY", "ORDINAL", "PERCENT", "TIME"))
    assert kinds.count("ORG") <= 200


def test_a_name_with_two_types_counts_for_either() -> None:
    """The prediction is right if it is one of them; macro-F1 agrees with scikit-learn on the resolved types."""
    predicted = ["ORG", "GPE", "PERSON", "LAW"]
    scores = score_predictions(predicted, [{"ORG", "FAC"}, {"GPE"}, {"ORG", "GPE"}, {"LAW"}])

    assert scores.accuracy == 0.75
    expected = f1_score(["ORG", "GPE", "GPE", "LAW"], predicted, labels=["GPE", "LAW", "ORG"], average="macro")
    assert scores.macro_f1 == pytest.approx(expected)
    assert scores.support == {"GPE": 2, "LAW": 1, "ORG": 1}


def test_nmi_agrees_with_scikit_learn_and_takes_weights() -> None:
    """With weights of 1 it is scikit-learn's figure; a weight of 2 is the item twice."""
    rng = np.random.default_rng(0)
    labels, clusters = rng.integers(0, 3, 50), rng.integers(0, 4, 50)
    found = nmi_outcome(labels, [clusters])
    weights = rng.integers(0, 3, 50)

    assert found.value == pytest.approx(100 * normalized_mutual_info_score(labels, clusters))
    repeated = [np.repeat(part, weights) for part in (labels, clusters)]
    assert found.score(weights.astype(float)) == pytest.approx(100 * normalized_mutual_info_score(*repeated))


def test_weights_are_repetitions_in_means_and_correlations() -> None:
    """A resample by weights is the figure of the items repeated."""
    rng = np.random.default_rng(1)
    x, y, weights = rng.normal(size=40), rng.normal(size=40), rng.integers(0, 4, 40)
    strata = np.arange(40) % 3
    credit = (x > 0).astype(float)

    pearson = 100 * np.corrcoef(np.repeat(x, weights), np.repeat(y, weights))[0, 1]
    assert pearson_outcome(x, y).score(weights.astype(float)) == pytest.approx(pearson)
    by_set = [np.repeat(credit, weights * (strata == i)).mean() for i in range(3)]
    found = mean_outcome([(np.arange(40), credit)], strata=strata)
    assert found.score(weights.astype(float)) == pytest.approx(100 * np.mean(by_set))
    assert found.score(np.ones(40)) == pytest.approx(found.value)


def test_the_bootstrap_tells_a_difference_from_chance() -> None:
    """Ten points on 2,000 items are significant, none and a single item's are not; the seed decides."""
    rng = np.random.default_rng(0)
    base = (rng.random(2000) < 0.6).astype(float)
    better = np.where(rng.random(2000) < 0.25, 1.0, base)
    one_more = base.copy()
    one_more[np.flatnonzero(base == 0)[0]] = 1
    of = {name: mean_outcome([(np.arange(2000), x)]) for name, x in (("a", base), ("b", better), ("c", one_more))}

    found = paired_bootstrap(of["b"], of["a"], rng=np.random.default_rng(1), n_resamples=300)
    assert found.low > 5
    assert found.low < found.mean < found.high
    assert found.significant
    assert found == paired_bootstrap(of["b"], of["a"], rng=np.random.default_rng(1), n_resamples=300)
    assert not paired_bootstrap(of["c"], of["a"], rng=np.random.default_rng(1), n_resamples=300).significant
    same = paired_bootstrap(of["a"], of["a"], rng=np.random.default_rng(1), n_resamples=50)
    assert (same.mean, same.low, same.high, same.significant) == (0, 0, 0, False)
    with pytest.raises(ValueError, match="same items"):
        paired_bootstrap(of["a"], mean_outcome([(np.arange(3), base[:3])]), rng=np.random.default_rng(1))


def test_each_string_is_encoded_once_across_tasks(folder: Path) -> None:
    """All tasks together ask the encoder for no string twice."""
    encoder = Letters()
    tasks = [task for task in TASKS if "ppdb" not in task.name and "_s" not in task.name]
    report = evaluate(FolderData(folder), EncoderMethod(encoder), [], tasks, OPTIONS)

    assert len(encoder.calls) == len(set(encoder.calls)) > 500
    assert {result.task.name for result in report.results} == {task.name for task in tasks} - set(report.skipped)


def test_what_is_absent_is_skipped_and_named(folder: Path) -> None:
    """The three sets that the folder lacks are named with their files; the others run."""
    report = run_tasks(folder, baselines=[StringMethod("jaccard"), StringMethod("tfidf")])

    assert report.skipped == {
        "ppdb_filtered": "no pearl_bench/ppdb_filtered.tsv",
        "ppdb_filtered_by_pair": "no pearl_bench/ppdb_filtered.tsv",
        "umls_local": "no pearl_bench/umls_test.tsv",
        "bc5cdr": "no pearl_bench/bc5cdr.tsv",
    }
    text = as_text(report)
    assert "bc5cdr: no pearl_bench/bc5cdr.tsv" in text
    for head in ("PPDB by pair", "Turney", "AutoFJ typos", "Twitter-S", "ATIS-L", "balanced", "PEARL-small (paper)"):
        assert head in text
    assert "letters above jaccard" in text


def test_a_model_without_a_head_skips_the_types(folder: Path) -> None:
    """A plain encoder is measured by all else."""
    method = EncoderMethod(Letters(has_head=False))
    report = evaluate(FolderData(folder), method, [], find_tasks(("bird", "types_natural")), OPTIONS)

    assert [result.task.name for result in report.results] == ["bird"]
    assert report.skipped == {"types_natural": "letters offers no types"}
    with pytest.raises(ValueError, match="no type head"):
        method.entity_types(["a"])


def test_the_record_has_the_contracts_fields(folder: Path) -> None:
    """Model, tasks, metric, value, n and the paper's figures, with deviation and differences beside."""
    record: Any = as_record(run_tasks(folder, "conll", "autofj", baselines=[StringMethod("tfidf")]))

    assert record["model"] == "letters"
    assert list(record["tasks"]) == ["conll", "autofj"]
    conll, autofj = record["tasks"]["conll"], record["tasks"]["autofj"]
    assert conll["metric"].startswith("NMI")
    assert conll["paper"]["PEARL-small"] == 48.7
    assert conll["deviation"] == 0
    assert autofj["n"] == 5
    assert set(autofj["baselines"]["tfidf"]) >= {"value", "difference", "interval", "significant"}


def test_string_baselines_find_what_shares_letters() -> None:
    """Both kinds find the name with the same words in other case, and give 0 to a name that shares nothing."""
    for kind in ("jaccard", "tfidf"):
        method = StringMethod("jaccard" if kind == "jaccard" else "tfidf")
        names = ["New York Post", "The New York Times", "qqq"]
        assert method.nearest(["THE new york times", "zzz qqq"], names).tolist() == [1, 2]
        same, other, blank = method.pair_scores(["abcd", "abcd", " "], ["ABCD", "wxyz", ""])
        assert (same, other, blank) == (pytest.approx(1), 0, 0)


def test_jaccard_is_shared_over_all_trigrams() -> None:
    """The names abc and abd with a space on each side share one trigram of five."""
    assert StringMethod("jaccard").pair_scores(["abc"], ["abd"])[0] == pytest.approx(1 / 5)
    assert StringMethod("jaccard").nearest(["abc zzz"], ["abc q", "abc zzz"]).tolist() == [1]


@pytest.mark.parametrize(
    "content, message",
    [
        (b"term1\tterm2\nx\ty\n", "no column relatedness; its header is term1, term2"),
        (b"", "header is empty"),
        (b"term1\tterm2\trelatedness\n", "holds no rows"),
        (b"term1\tterm2\trelatedness\na\tb\n", ":2: expected 3 fields, found 2"),
        (b"term1\tterm2\trelatedness\na\tb\tmuch\n", "a relatedness is 'much', no number"),
        (b"term1\tterm2\trelatedness\na\tb\tnan\n", "no number"),
        (b"term1\tterm2\trelatedness\na\tb\t1\nc\t\xff\t1\n", ":3: no UTF-8"),
    ],
)
def test_a_broken_table_is_an_error_with_its_place(folder: Path, content: bytes, message: str) -> None:
    """The message names the file, where it can the line, and what is wrong."""
    (folder / "pearl_bench" / "bird.tsv").write_bytes(content)
    with pytest.raises(FormatError) as error:
        run_tasks(folder, "bird")
    assert "bird.tsv" in str(error.value)
    assert message in str(error.value)


@pytest.mark.parametrize(
    "task, path, header, rows, message",
    [
        ("ppdb", "pearl_bench/ppdb.tsv", "phrase1 phrase2 label", [("a", "b", "maybe")], "not maybe"),
        ("conll", "pearl_bench/conll2003.tsv", "split type mention", [("train", "PER", "a")], "too few mentions"),
        ("autofj", "autofj/gt.tsv", "dataset title_l title_r", [("A", "x", "y")], "no right title has a match"),
        ("atis_s", "intent/atis.tsv", "text intent", [("a", "atis_flight")], "too few to classify"),
        ("types_natural", "typed_names/onto_typed_names.tsv", "name onto_type", [("a", "PLACE")], "none of CARDINAL"),
    ],
)
def test_a_table_that_makes_no_sense_is_an_error(
    folder: Path, task: str, path: str, header: str, rows: Sequence[Sequence[object]], message: str
) -> None:
    """Labels, types and matches are checked, and the message says which are wrong."""
    write(folder, path, header, rows)
    with pytest.raises(FormatError, match=message):
        run_tasks(folder, task)


def test_methods_and_options_are_checked(folder: Path) -> None:
    """One name twice, no seed, a task or a folder that is not there: each is refused."""
    with pytest.raises(ValueError, match="named once"):
        run_tasks(folder, "bird", baselines=[StringMethod("jaccard"), StringMethod("jaccard")])
    with pytest.raises(ValueError, match="at least 1, not 0"):
        EvaluationOptions(n_seeds=0)
    with pytest.raises(ValueError, match="epochs must be"):
        EvaluationOptions(max_epochs=0)
    with pytest.raises(ValueError, match="no task nope; there are: ppdb, "):
        find_tasks(("nope", "bird"))
    with pytest.raises(SettingsError, match="No folder"):
        FolderData(folder / "absent")


def test_folders_are_shown_by_as_much_of_their_path_as_tells_them_apart() -> None:
    """Two folders of one name keep their parents."""
    assert short_names(["/a/x/model", "/b/y/model", "tiny", "owner/name"]) == {
        "/a/x/model": "x/model",
        "/b/y/model": "y/model",
        "tiny": "tiny",
        "owner/name": "owner/name",
    }


class Frame:
    """As much of a pandas table as is read."""

    def __init__(self, *records: Mapping[str, Any]) -> None:
        self.records = list(records)

    def to_dict(self, orient: str) -> list[Mapping[str, Any]]:
        assert orient == "records"
        return self.records


def hub(repository: str, config: str, split: str) -> list[Mapping[str, Any]]:
    """The benchmark's columns, as its own evaluation reads them; UMLS lies under another split."""
    assert repository == "Lihuchen/pearl_benchmark"
    tables: dict[tuple[str, str], list[Mapping[str, Any]]] = {
        ("bird", "test"): [
            {"term1": "abc", "term2": "cba", "relatedness score": 0.9},
            {"term1": "abc", "term2": "xyz", "relatedness score": 0.1},
        ],
        ("turney", "test"): [
            {"query": "ab", "label": "ba", **{f"candidate_{i}": "xyz" + "z" * i for i in range(1, 5)}}
        ],
        ("umls", "umls"): [{"query": "abc", "label": "cba"}],
        ("kb", "umls"): [{"entity_name": "cba"}, {"entity_name": "xyz"}, {"entity_name": None}],
        ("conll", "test"): [
            {"entity": entity, "label": label} for entity, label in (("aa", 0), ("xx", 1), ("kk", 2), (None, 0))
        ],
        ("autofj", "test"): [{"Dataset": "A"}],
    }
    if (config, split) not in tables:
        raise ValueError(f'Unknown split "{split}".')
    return tables[config, split]


def test_the_hubs_benchmark_reads_like_the_folder() -> None:
    """Its configurations, columns, numbered labels and missing names come in the folder's form."""
    join = (
        Frame({"id": 0, "title": "abcd"}, {"id": 1, "title": "xyz"}),
        Frame({"id": 0, "title": "dcba"}),
        Frame({"title_l": "abcd", "title_r": "dcba"}),
    )
    data = HubData(load=hub, load_join=lambda name: join)
    names = ("turney", "bird", "umls_local", "conll", "autofj")
    report = evaluate(data, EncoderMethod(Letters()), [], find_tasks(names), OPTIONS)
    values = {result.task.name: result.outcomes["letters"] for result in report.results}

    assert values["turney"].value == values["autofj"].value == values["umls_local"].value == 100
    assert values["umls_local"].details["n_names"] == 3
    assert values["conll"].n == 4
    assert data.rows("pearl_bench/conll2003.tsv", "mention", "type")[3] == ("NA", "PER")
    with pytest.raises(SettingsError, match="ppdb has no split test"):
        data.rows("pearl_bench/ppdb.tsv", "phrase1")


def test_without_the_libraries_the_hub_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """No `datasets` is an error with the fix, no network is one too; no `autofj` skips its tasks."""
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name in ("datasets", "autofj") else find_spec(name)
    )
    with pytest.raises(SettingsError, match="pip install datasets"):
        HubData().rows("pearl_bench/bird.tsv", "term1")
    assert HubData().paths("autofj/left.tsv") == []

    def offline(repository: str, config: str, split: str) -> list[Mapping[str, Any]]:
        raise ConnectionError("no route")

    with pytest.raises(SettingsError, match="could not be fetched"):
        HubData(load=offline).rows("pearl_bench/bird.tsv", "term1")


def test_the_command_prints_tables_or_json(run: Run, model: Path, folder: Path) -> None:
    """`evaluate` measures a checkpoint; the table has the paper's figures, JSON is one line."""
    words = (
        "evaluate",
        "--model",
        str(model),
        "--data",
        str(folder),
        "--task",
        "bird",
        "--task",
        "autofj",
        "--seeds",
        "1",
    )
    shown = run(*words)

    assert shown.status == 0
    assert "PEARL-small (paper)" in shown.out
    assert "tiny above jaccard" in shown.out
    found: Any = run(*words, "--baseline", "tfidf", "--json").lines()
    assert len(found) == 1
    assert found[0]["model"] == str(model)
    assert set(found[0]["tasks"]) == {"bird", "autofj"}
    assert list(found[0]["tasks"]["bird"]["baselines"]) == ["tfidf"]


def test_the_command_names_its_tasks_and_refuses_others(run: Run, model: Path, folder: Path) -> None:
    """`--list` needs nothing else; an unknown task is a usage error that lists those there are."""
    listed = run("evaluate", "--list")
    assert [line.split()[0] for line in listed.out.splitlines()] == [task.name for task in (*TASKS, *ON_REQUEST)]

    wrong = run("evaluate", "--model", str(model), "--data", str(folder), "--task", "birds")
    assert wrong.status == 2
    assert "there are: ppdb" in wrong.err
    absent = run("evaluate", "--model", str(model), "--data", str(folder / "absent"))
    assert absent.status == 1
    assert "No folder" in absent.err


def test_what_is_not_installed_is_said_first(
    run: Run, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without scikit-learn the command names the extra; a figure in no folder is refused before the work."""
    find_spec = importlib.util.find_spec
    words = ("evaluate", "--data", str(folder), "--task", "bird", "--figure", str(tmp_path / "no" / "f.png"))
    excluded = {"sklearn"}
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in excluded else find_spec(name))
    assert "needs sklearn" in run(*words).err

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: True)
    refused = run(*words)
    assert refused.status == 1
    assert "for the figure" in refused.err


def test_the_figure_has_a_panel_an_encoder(folder: Path, tmp_path: Path) -> None:
    """The PNG is there, and too few names are refused with the fix."""
    from training.evaluation.reports.figure import draw_figure

    draw_figure(tmp_path / "f.png", FolderData(folder), [EncoderMethod(Letters()), EncoderMethod(Letters(), name="b")])

    assert (tmp_path / "f.png").read_bytes().startswith(b"\x89PNG")
    (folder / "typed_names" / "onto_typed_names.tsv").unlink()
    with pytest.raises(SettingsError, match="typed names"):
        draw_figure(tmp_path / "g.png", FolderData(folder), [EncoderMethod(Letters())])


def test_figure_names_are_of_six_types_at_most(folder: Path) -> None:
    """Names of the test fold by type, and medical ones where the bases are there."""
    from training.evaluation.reports.figure import figure_names, project

    write(
        folder,
        "kb/biomedical/mondo_x.tsv",
        "id name type aliases",
        [(i, w, "disease", "") for i, w in enumerate(words(150))],
    )
    names = figure_names(FolderData(folder), random.Random(0))

    assert set(names) == {"Person", "Organization", "MedicalEntity"}
    assert len(names["MedicalEntity"]) == 100
    points = project(EncoderMethod(Letters()).vectors(names["MedicalEntity"]))
    assert points.shape == (100, 2)
    assert np.isfinite(points).all()


def test_every_task_is_described() -> None:
    """Names are unique, metrics and files stated, and the paper's nine sets have its figures."""
    assert len({task.name for task in TASKS}) == len(TASKS)
    assert all(task.metric and task.reads and task.head for task in TASKS)
    assert sum(task.paper["PEARL-small"] for task in TASKS if task.in_table_3) / 9 == pytest.approx(63.1, abs=0.05)
    assert "OTHER" in ENTITY_TYPES


def test_a_program_evaluates_as_the_command_does(run: Run, model: Path, folder: Path) -> None:
    """One call gives the report that the command prints; progress goes to a callback."""
    said: list[str] = []
    report = evaluate_model(folder, str(model), tasks=["bird"], baselines=["tfidf"], seeds=1, say=said.append)
    words = f"--task bird --baseline tfidf --seeds 1 --json --model {model} --data {folder}".split()
    command = run("evaluate", *words)

    def timeless(record: Any) -> Any:
        return [{key: value for key, value in task.items() if key != "seconds"} for task in record["tasks"].values()]

    assert timeless(as_record(report)) == timeless(command.lines()[0])
    assert any(line.startswith("bird: ") for line in said)
    with pytest.raises(OptionError, match="there are: ppdb"):
        evaluate_model(folder, str(model), tasks=["birds"])
