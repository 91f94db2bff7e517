"""Tiny evaluation sets in the layout of the real ones, and an encoder whose figures can be computed by hand."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pearl_qdrant.encoder.protocol import Encoded, ModelInfo
from pearl_qdrant.phrase_types import PHRASE_TYPES
from training.evaluation.data import FolderData
from training.evaluation.methods import EncoderMethod
from training.evaluation.outcome import Outcome
from training.evaluation.run import Report, evaluate
from training.evaluation.tasks import find_tasks
from training.options import EvaluationOptions

OPTIONS = EvaluationOptions(n_seeds=2, n_distractors=3, max_epochs=2)


class Letters:
    """An encoder whose vectors count letters. The type is PERSON for a name with an x, else ORG."""

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


def write_table(folder: Path, path: str, header: str, rows: Sequence[Sequence[object]]) -> None:
    """Write a table of the layout; the header's columns are separated by spaces."""
    table = folder / path
    table.parent.mkdir(parents=True, exist_ok=True)
    lines = [header.replace(" ", "\t"), *("\t".join(map(str, row)) for row in rows)]
    table.write_text("\n".join(lines) + "\n", encoding="utf-8")


def made_up_names(n: int, seed: int = 0) -> list[str]:
    """Random names of nine letters from a to j."""
    rng = random.Random(seed)
    return ["".join(rng.choice("abcdefghij") for _ in range(9)) for _ in range(n)]


def make_evaluation_data(folder: Path) -> None:
    """Write a little of every set except PPDB-filtered, UMLS and BC5CDR."""
    _write_pairs(folder)
    _write_entities(folder)
    _write_joins(folder)
    _write_texts(folder)
    _write_universal(folder)
    names = [(name, i % 2) for i, name in enumerate(made_up_names(400, 3))]
    typed = [(name + "x" * odd, "PERSON" if odd else "ORG", "s", 1) for name, odd in names]
    write_table(folder, "typed_names/onto_typed_names.tsv", "name onto_type sources n_types_for_name", typed)


def _write_pairs(folder: Path) -> None:
    """Paraphrases, Turney and BIRD."""
    names = made_up_names(60)
    pairs = [(a, a[::-1], "pos", "1") for a in names]
    pairs += [(a, "zzzz " + "yxw" * (i % 3 + 1), "neg", "") for i, a in enumerate(names)]
    write_table(folder, "pearl_bench/ppdb.tsv", "phrase1 phrase2 label ppdb_score", pairs)
    write_table(
        folder,
        "pearl_bench/turney.tsv",
        "query answer component1 component2 distractor1 distractor2 distractor3 distractor4",
        [("abc", "cab", "a", "b", "xyz", "uvw", "klm", "zzz"), ("xyz", "klm", "x", "y", "zyx", "abc", "def", "ghi")],
    )
    rated = [("abc", "cba", 1.0), ("abc", "abz", 0.6), ("abc", "xyz", 0.0), ("ab", "ac", 0.5)]
    write_table(folder, "pearl_bench/bird.tsv", "term1 term2 relatedness", rated)


def _write_entities(folder: Path) -> None:
    """Retrieval with its base, and clustering."""
    write_table(folder, "pearl_bench/yago_test.tsv", "mention canonical", [("abcd", "dcba"), ("xyz", "qqq")])
    names = ["dcba", "zyx", "mno", "mno", "ppp", "rst"]
    rows = [(i, name, "GPE", "", "", "s") for i, name in enumerate(names)]
    write_table(folder, "kb/general.tsv", "id name onto_type fine_type aliases source", rows)
    mentions: list[tuple[object, ...]] = [("test", i, "PER", "aab" * (i % 3 + 1)) for i in range(9)]
    mentions += [("test", i, kind, name) for kind, name in (("LOC", "xxy"), ("ORG", "klm")) for i in range(9)]
    mentions += [("test", 0, "MISC", "qqq"), ("train", 0, "PER", "zzz")]
    write_table(folder, "pearl_bench/conll2003.tsv", "split sent_id type mention", mentions)


def _write_joins(folder: Path) -> None:
    """Two fuzzy joins; one right title has no match."""
    left = [("A", 0, "abcd"), ("A", 1, "wxyz"), ("B", 0, "hello"), ("B", 1, "other")]
    right = [("A", 0, "dcba"), ("A", 1, "zyxw"), ("A", 2, "unmatched"), ("A", 3, "wxy")]
    right += [("B", 0, "olleh"), ("B", 1, "hell")]
    matches = [("A", 0, "abcd", 0, "dcba"), ("A", 1, "wxyz", 1, "zyxw"), ("A", 0, "abcd", 3, "wxy")]
    matches += [("B", 1, "other", 0, "olleh"), ("B", 0, "hello", 1, "hell")]
    write_table(folder, "autofj/left.tsv", "dataset id title", left)
    write_table(folder, "autofj/right.tsv", "dataset id title", right)
    write_table(folder, "autofj/gt.tsv", "dataset id_l title_l id_r title_r", matches)


def _write_texts(folder: Path) -> None:
    """Tweets and queries, short and long."""
    pairs = zip(made_up_names(90, 1), made_up_names(90, 2), strict=True)
    texts = [("test", f"{a} {b}" + " more" * (i % 2 * 10), i % 3) for i, (a, b) in enumerate(pairs)]
    write_table(folder, "tweets/sentiment.tsv", "split text label", texts)
    intents = ("atis_flight", "atis_airfare", "atis_meal")
    queries = [(split, text, intents[i % 3], "O") for i, (split, text, _) in enumerate(texts)]
    write_table(folder, "intent/atis.tsv", "split text intent slots_bio", queries)


def _write_universal(folder: Path) -> None:
    """Analogies of three levels, and questions with their paraphrases."""
    header = "kind level relation a b c d_gold distractors"
    # Letters: c + b - a is exactly d_gold in the first rows; in the last one it is the distractor.
    rows: list[tuple[str, ...]] = []
    for level, end in (("word", ""), ("phrase", " rr"), ("sentence", " rr ss")):
        rows.append(("semantic", level, "first", "a" + end, "ab" + end, "c" + end, "cb" + end, "xy|zz|kk|mm"))
        rows.append(("syntactic", level, "second", "a" + end, "ab" + end, "d" + end, "db" + end, "xx"))
        rows.append(("syntactic", level, "third", "a" + end, "ab" + end, "d" + end, "qq" + end, "db" + end))
    write_table(folder, "ulr_analogy/analogies.tsv", header, rows)
    questions = [
        ("train", "how big is _state_ ?", "area of california", "x"),
        ("train", "how big is _state_ ?", "area of california", "x"),
        ("dev", "how long is the _river_ river ?", "length of colorado river", "x"),
        ("train_nat", "who ?", "nobody", "x"),
    ]
    write_table(folder, "geogranno/geo_pairs.tsv", "split question canonical logical_form", questions)


def run_tasks(folder: Path, *names: str, baselines: Sequence[object] = ()) -> Report:
    """Report of `Letters` on the named tasks, by default on all."""
    return evaluate(FolderData(folder), EncoderMethod(Letters()), baselines, find_tasks(names), OPTIONS)


def task_outcome(folder: Path, task: str) -> Outcome:
    """Outcome of `Letters` on a task."""
    (result,) = run_tasks(folder, task).results
    return result.outcomes["letters"]
