"""Hard negatives: pairs at a small edit distance found without comparing all, and which of them are kept."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from cli_runner import Run
from hypothesis import given
from hypothesis import strategies as st
from rapidfuzz.distance import Levenshtein
from tiny_models import make_bert

from ingest.io.report import ReadReport
from training.examples.example import Phrase, fold_phrase
from training.examples.files import read_negatives
from training.hard_negatives import FloatArray, edit_pairs, mine_hard_negatives
from training.options import MiningConfig


def brute_force(texts: Sequence[str]) -> set[tuple[int, int]]:
    """All pairs within two edits, by comparing each with each."""
    return {
        (i, j)
        for i in range(len(texts))
        for j in range(i + 1, len(texts))
        if 0 < Levenshtein.distance(texts[i], texts[j], score_cutoff=2) <= 2
    }


@given(st.lists(st.text("abé ", max_size=24), unique=True, max_size=12))
def test_no_pair_is_missed_among_few_strings(texts: list[str]) -> None:
    """Whatever the strings, short or long, empty ones apart, no pair is missed where no block is crowded."""
    texts = sorted(text for text in texts if text)
    pairs, distances = edit_pairs(texts)

    assert {(i, j) for i, j in pairs.tolist()} == brute_force(texts)
    assert [Levenshtein.distance(texts[i], texts[j]) for i, j in pairs.tolist()] == distances.tolist()


def test_a_crowded_block_is_searched_around_each_name_only() -> None:
    """Thousands of names of one template cost a window each, not a square; near ones are found all the same."""
    texts = sorted(f"list of {i:04} places in the country" for i in range(3000))
    pairs, _ = edit_pairs(texts, window=8)

    assert len(pairs) < 3000 * 200
    near = {(i, i + 1) for i in range(2999) if i % 10 < 9}
    assert near <= {(i, j) for i, j in pairs.tolist()}


def at_angles(angles: dict[str, float]) -> object:
    """An encoder that puts each name at an angle, in degrees."""

    def encode(names: Sequence[str]) -> FloatArray:
        radians = np.radians([angles.get(name, 180.0) for name in names])
        return np.stack([np.cos(radians), np.sin(radians)], axis=1).astype(np.float32)

    return encode


def mined(phrases: list[Phrase], angles: dict[str, float], **settings: object) -> dict[str, list[str]]:
    """Hard negatives by phrase."""
    config = MiningConfig(**settings)  # type: ignore[arg-type]
    return dict(mine_hard_negatives(phrases, at_angles(angles), config=config))  # type: ignore[arg-type]


def test_those_with_the_lowest_cosine_are_kept() -> None:
    """Of candidates with similar spelling, those with the lowest cosines come first, up to a limit."""
    angles = {"carbon": 0.0, "carton": 90.0, "cartoon": 60.0, "carbons": 40.0, "zebra": 170.0}
    found = mined([Phrase(name) for name in angles], angles, kept=2)

    assert found["carbon"] == ["carton", "cartoon"]
    assert "zebra" not in {name for names in found.values() for name in names}
    assert "zebra" not in found


def test_no_hard_negative_means_the_same() -> None:
    """None is of the same entity, equal after case and punctuation folding, or close to the teacher."""
    angles = {"New York": 0.0, "new-york": 80.0, "New Yorks": 10.0, "New Fork": 70.0, "New Yorke": 120.0}
    angles["Newer York"] = 120.0
    phrases = [
        Phrase("New York", ("1", "2")),
        Phrase("new-york"),
        Phrase("New Yorks"),
        Phrase("New Fork", ("3",)),
        Phrase("New Yorke", ("4", "2")),
        Phrase("Newer York", ("1",)),
    ]
    found = mined(phrases, angles)

    assert found["New York"] == ["New Fork"]
    assert "New York" not in found["New Yorke"]
    assert "New York" not in found.get("Newer York", [])
    assert set(found["New Fork"]) == {"New Yorks", "New York", "New Yorke", "Newer York"}
    assert fold_phrase("C++") == fold_phrase("c") == "c"
    assert fold_phrase("++") == "++"


def test_a_wider_circle_than_two_edits_is_looked_at() -> None:
    """Phrases that share their start, their end or a rare word are candidates, up to a share of their length."""
    angles = {"New York Times": 0.0, "New York Post": 90.0, "Financial Times": 90.0, "Aspirin": 90.0}
    phrases = [Phrase(name) for name in angles]

    assert mined(phrases, angles)["New York Times"] == ["New York Post"]
    assert "Financial Times" in mined(phrases, angles, max_share=0.7)["New York Times"]
    assert "New York Times" not in mined(phrases, angles, neighbours=0)


def test_short_phrases_are_not_alike_for_being_short() -> None:
    """Two edits make "uk" of "us" into anything: the share of the length bounds those within two edits too."""
    angles = {"us": 0.0, "uk": 90.0, "nz": 90.0, "carbon": 0.0, "carton": 90.0, "cartoon": 90.0}
    phrases = [Phrase(name) for name in angles]

    assert mined(phrases, angles)["us"] == ["uk"]
    assert set(mined(phrases, angles)["carbon"]) == {"carton", "cartoon"}
    assert mined(phrases, angles, max_share=0.2)["carbon"] == ["carton"]
    assert "us" not in mined(phrases, angles, max_share=0.2)
    assert set(mined(phrases, angles, max_share=1.0, neighbours=0)["us"]) == {"uk", "nz"}


def test_mining_has_nothing_to_say_about_nothing() -> None:
    """No phrases, one phrase, blank ones, and names that the encoder cannot see give no rows."""

    def blind(names: Sequence[str]) -> FloatArray:
        return np.zeros((len(names), 4), dtype=np.float32)

    assert list(mine_hard_negatives([], blind)) == []
    assert list(mine_hard_negatives([Phrase("a"), Phrase(" ")], blind)) == []
    assert list(mine_hard_negatives([Phrase("alpha"), Phrase("alphas")], blind)) == []


@pytest.mark.slow
def test_the_command_mines_from_a_base(tmp_path: Path, run: Run) -> None:
    """`train negatives` reads a base of names, encodes with any model, and writes a file that `train fit` reads."""
    base = tmp_path / "base.tsv"
    names = [("1", "New York", "nyc"), ("2", "New Fork", ""), ("3", "New Cork", "")]
    base.write_text("id\tname\taliases\n" + "".join("\t".join(row) + "\n" for row in names), encoding="utf-8")
    out = tmp_path / "made" / "hard_negative.txt"
    bert = make_bert(tmp_path / "bert")
    words = ["--aliases", str(base), "--model", str(bert), "--out", str(out)]
    result = run("train", "negatives", *words)

    assert result.status == 0, result.err
    rows = dict(read_negatives(out, ReadReport(max_errors=0)))
    assert rows["New York"]
    assert set(rows["New York"]) <= {"New Fork", "New Cork"}
    assert "nothing to learn from" in run("train", "negatives", "--out", str(out)).err
