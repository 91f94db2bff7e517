"""Variants of phrases on three levels, and the draw of the paper."""

from __future__ import annotations

import json
import pickle
import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from cli_runner import Run
from hypothesis import given
from hypothesis import strategies as st
from tiny_models import make_bert
from tiny_wordnet import make_wordnet

from ingest.io.report import ReadReport
from pearl_qdrant.errors import DeviceError, FormatError, ModelNotFoundError
from training.augment.draw import (
    EDITS,
    Augmenter,
    Synonyms,
    VariantTable,
    edit_letters,
    open_augmenter,
    wordnet_synonyms,
)
from training.augment.variants import Paraphraser, find_neighbours, read_vectors, write_paraphrases
from training.examples.files import read_variants

SYNONYMS = Synonyms([("newspaper", ["paper", "Newspaper", " "]), ("heart attack", ["myocardial infarction"])])

phrases = st.one_of(
    st.text(min_size=1, max_size=30),
    st.text(alphabet=st.characters(), min_size=1, max_size=20),  # surrogates, marks, controls and unassigned ones
    st.lists(
        st.sampled_from("the New York newspaper 3M İ ß 東京 مدينة 👩‍👩‍👧 e\u0301tat \u202e".split(" ")), min_size=1
    ).map(" ".join),
    st.from_regex(r"\A\w{1,12}\Z"),
)


@given(phrases, st.integers(0, 2**32))
def test_no_level_ever_gives_an_empty_phrase(phrase: str, seed: int) -> None:
    """For any phrase and any draw, the variant is not blank, and the same for the same seed."""
    for level in range(5):
        augmenter = Augmenter(synonyms=SYNONYMS, weights=tuple(float(i == level) for i in range(5)))
        made = augmenter(phrase, random.Random(seed))

        assert made.strip() or not phrase.strip()
        assert made == augmenter(phrase, random.Random(seed))


@given(st.text(alphabet=st.characters(categories=["Lu", "Ll", "Lo"]), min_size=3, max_size=12), st.integers(0, 2**32))
def test_one_word_of_letters_is_always_changed(word: str, seed: int) -> None:
    """A phrase of one word never becomes its own positive, in any script, unless that is drawn."""
    assert Augmenter(synonyms=SYNONYMS, weights=(0.1, 0.3, 0.5, 0.1, 0.0))(word, random.Random(seed)) != word


@given(phrases, st.integers(0, 2**32))
def test_an_edit_keeps_digits_and_changes_one_place(phrase: str, seed: int) -> None:
    """A character edit leaves numbers alone: another digit is another name."""
    edited = edit_letters(phrase, random.Random(seed))

    if edited is not None:
        assert edited != phrase
        assert edited[0] == phrase[0]
        before, after = Counter(c for c in phrase if c.isdigit()), Counter(c for c in edited if c.isdigit())
        assert before <= after  # OCR may make a digit of a letter, nothing takes one away
        assert abs(len(edited) - len(phrase)) <= 1


def test_each_of_the_six_edits_does_what_its_name_says() -> None:
    """Swap, delete, insert, substitute, keyboard and OCR each give what they should."""
    swap, delete, insert, substitute, keyboard, ocr = (
        {edit("Times", 2, random.Random(i)) for i in range(200)} for edit in EDITS
    )

    assert swap == {"Tiems"}
    assert delete == {"Ties"}
    assert "Tizmes" in insert
    assert all(len(made) == 6 for made in insert)
    assert "Tizes" in substitute
    assert keyboard == {"Tihes", "Tijes", "Tikes", "Tines"}
    assert ocr == {"Tirnes", "Tinnes"}


def test_levels_are_drawn_as_the_paper_draws_them(tmp_path: Path) -> None:
    """The shares are 10, 30, 50, 5 and 5 %; a level that has nothing to give leaves its share to the others."""
    table = VariantTable(variants(tmp_path, {"phrase": "The New York newspaper", "aug": ["The NY one"]}))
    rng, n = random.Random(0), 20_000
    full, bare = Augmenter(synonyms=SYNONYMS, paraphrases=[table]), Augmenter()
    counts = Counter(full("The New York newspaper", rng) for _ in range(n))
    kept = Counter(bare("Toshiki Kadomatsu", rng) for _ in range(n))

    assert counts["The NY one"] / n == pytest.approx(0.5, abs=0.015)
    assert counts["The New York paper"] / n == pytest.approx(0.3, abs=0.015)
    assert counts["The New York newspaper"] / n == pytest.approx(0.05, abs=0.01)
    assert kept["Toshiki Kadomatsu"] / n == pytest.approx(0.05, abs=0.01)
    assert kept["Kadomatsu Toshiki"] / n == pytest.approx(0.95 / 3, abs=0.02)


def test_synonyms_come_from_wordnet_and_keep_case_and_number(tmp_path: Path) -> None:
    """A word, its plural or a whole phrase is replaced; function words are not."""
    folder = make_wordnet(
        tmp_path / "dict",
        [("n", "car|automobile"), ("n", "heart attack|coronary"), ("n", "inch|in"), ("n", "city|metropolis")],
        instances=[("New York|Big Apple", 15)],
    )
    synonyms = Synonyms(wordnet_synonyms(folder))

    def made(phrase: str) -> set[str | None]:
        return {synonyms.replace(phrase, random.Random(i)) for i in range(30)}

    assert made("Car in the city") == {"Automobile in the city", "Car in the metropolis"}
    assert made("old cars") == {"old automobiles"}
    assert made("Heart attack") == {"Coronary"}
    assert made("New York") == {"Big Apple"}
    assert made("in") == made("nothing known") == {None}


def test_neighbours_of_word_vectors_are_those_over_the_threshold(tmp_path: Path) -> None:
    """The nearest words of a .vec file, and none below the threshold or equal except for case."""
    path = tmp_path / "tiny.vec"
    path.write_text("5 2\ncar 1 0\nCar 2 0\nauto 0.9 0.1\nbanana 0 1\nzero 0 0\n", encoding="utf-8")
    words, vectors = read_vectors(path)

    assert words == ["car", "Car", "auto", "banana"]
    assert find_neighbours(words, vectors, threshold=0.9) == {
        "car": ("auto",),
        "Car": ("auto",),
        "auto": ("car", "Car"),
    }
    assert read_vectors(path, words={"auto", "car"}, limit=1)[0] == ["car"]
    path.write_text("car 1 0\nauto 0.9 0.1\n", encoding="utf-8")  # GloVe has no header
    np.testing.assert_allclose(np.linalg.norm(read_vectors(path)[1], axis=1), 1, rtol=1e-6)


@pytest.mark.parametrize("row", ["auto 1", "auto 1 x", "auto 1 nan", "auto"])
def test_a_broken_row_of_vectors_is_named(tmp_path: Path, row: str) -> None:
    """A wrong row is an error with its line."""
    path = tmp_path / "broken.vec"
    path.write_text(f"2 2\ncar 1 0\n{row}\n", encoding="utf-8")

    with pytest.raises(FormatError, match=r"broken.vec:3: .*2 (finite )?numbers"):
        read_vectors(path)


def variants(folder: Path, *rows: object) -> Path:
    """A JSON Lines file."""
    folder.mkdir(exist_ok=True)
    path = folder / "phrase_aug.jsonl"
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def test_a_table_serves_paraphrases_synonyms_and_aliases(tmp_path: Path) -> None:
    """Published files and those made from bases are looked up on disk, also after being sent to another process."""
    path = variants(
        tmp_path, {"phrase": "a__b", "aug": ["x", " ", "a__b"]}, {"phrase": "naïve", "synonyms": ["simple"]}
    )
    table = VariantTable(path)
    aliases = VariantTable(variants(tmp_path / "kb", {"entity": "kb:1", "names": ["NYT", "The NYT"], "types": []}))

    def drawn(one: VariantTable, phrase: str) -> set[str | None]:
        return {one.replace(phrase, random.Random(i)) for i in range(30)}

    for one in (table, pickle.loads(pickle.dumps(table))):
        assert drawn(one, "a__b") == {"x"}
        assert drawn(one, "na\u00efve") == {"simple"}
        assert drawn(one, "unknown") == {None}
    assert (drawn(aliases, "NYT"), drawn(aliases, "The NYT")) == ({"The NYT"}, {"NYT"})


def test_a_table_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    """A missing, empty, compressed or foreign file is an error with the way out."""
    path = tmp_path / "phrase_aug.jsonl"
    with pytest.raises(FormatError, match="does not exist"):
        VariantTable(path)
    path.write_bytes(b"")
    with pytest.raises(FormatError, match="empty"):
        VariantTable(path)
    path.write_bytes(b"\x1f\x8bxx")
    with pytest.raises(FormatError, match="Decompress it first"):
        VariantTable(path)
    path.write_text('{"phrase": "a", "aug": ["b"]}\n{"phrase": 3}\n', encoding="utf-8")
    with pytest.raises(FormatError, match=r"phrase_aug.jsonl:2: is not a row of variants"):
        VariantTable(path)


@pytest.fixture(scope="module")
def t5(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random T5 with a tokenizer."""
    import torch
    import transformers

    folder = make_bert(tmp_path_factory.mktemp("t5"))
    shape = {"vocab_size": 120, "d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 2}
    config = transformers.T5Config.from_dict({**shape, "decoder_start_token_id": 0})
    with torch.random.fork_rng():
        torch.manual_seed(0)
        transformers.T5ForConditionalGeneration(config).save_pretrained(folder)
    return folder


def test_a_paraphraser_loads_and_resumes(t5: Path, tmp_path: Path) -> None:
    """Paraphrases are written once; a resumed run ends with the same file as an uninterrupted one."""
    maker = Paraphraser(str(t5))
    wanted = ["heart attack", "aspirin", "new york", "the city"]
    whole, cut = tmp_path / "whole.jsonl", tmp_path / "cut.jsonl"
    assert write_paraphrases(wanted, maker, whole, batch_size=2) == 4
    rows = whole.read_text(encoding="utf-8").splitlines(keepends=True)
    cut.write_text(rows[0] + rows[1] + rows[2][:9], encoding="utf-8")

    assert write_paraphrases(wanted, maker, cut, batch_size=2) == 2
    cut.write_text("".join(rows[:3]), encoding="utf-8")  # killed within a batch
    assert write_paraphrases(wanted, maker, cut, batch_size=2) == 2
    assert cut.read_bytes() == whole.read_bytes()
    found = dict(read_variants(whole, ReadReport(max_errors=0)))
    assert list(found) == wanted
    assert all(text.strip() and text != phrase for phrase, texts in found.items() for text in texts)
    with pytest.raises(FormatError, match="other phrases"):
        write_paraphrases(["another", "one"], maker, whole, batch_size=2)


def test_a_missing_model_or_device_is_an_error(t5: Path, tmp_path: Path) -> None:
    """A wrong model or device is an error of ours, not a traceback."""
    with pytest.raises(ModelNotFoundError, match="cannot be loaded as a sequence-to-sequence model"):
        Paraphraser(str(tmp_path))
    with pytest.raises(DeviceError, match="device cpu"):
        Paraphraser(str(t5), device="cuda:7")


def test_paraphrases_and_synonyms_are_made_by_commands(run: Run, t5: Path, tmp_path: Path) -> None:
    """`train paraphrase` and `train synonyms` write files beside the corpus, which augmentation then draws from."""
    (tmp_path / "freq_phrase.txt").write_text("NP__heart attack\t3\nNP__the car\t2\nVP__the car\t1\n", encoding="utf-8")
    vectors = tmp_path / "tiny.vec"
    vectors.write_text("car 1 0\nheart 1 0.1\nattack 0 1\n", encoding="utf-8")

    made = run("train", "paraphrase", str(tmp_path), "--model", str(t5))
    assert made.status == 0, made.err
    assert "2 phrases written" in made.out
    made = run("train", "synonyms", str(tmp_path), "--vectors", str(vectors))
    assert made.status == 0, made.err
    assert {open_augmenter([tmp_path])("car", random.Random(i)) for i in range(30)} >= {"heart"}

    missing = run("train", "paraphrase", str(tmp_path / "none"))
    assert missing.status == 1
    assert "train corpus" in missing.err
