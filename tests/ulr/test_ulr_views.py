"""Sequences cut from texts, and what the network sees of each: n-gram, rest, and the masked whole."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from tiny_models import make_albert, make_bert
from tokenizers import Tokenizer
from ulr_cases import SENTENCES, open_base

from ingest.io.report import ReadReport
from pearl_qdrant.encoder.batching import open_tokenizer
from pearl_qdrant.errors import FormatError, InputError, ModelError
from training.ulr.drawing import Masking, TextSequences, cut, make_views, open_masking, read_sequences, tokenise


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """A tokenizer of words and letters."""
    return open_tokenizer(make_bert(tmp_path_factory.mktemp("models") / "bert") / "tokenizer.json")


def words(tokenizer: Tokenizer, ids: list[int]) -> str:
    """Token ids as text, special ones included."""
    return " ".join(str(tokenizer.id_to_token(i)) for i in ids)


def read(path: Path, **changes: object) -> list[str]:
    """The sequences of a text file."""
    options: dict[str, object] = {"field": "text", "max_words": 8, "limit": 100, "seed": 0}
    found = read_sequences([path], ReadReport(), **{**options, **changes})  # type: ignore[arg-type]
    return [marked.text for marked in found]


def test_texts_are_cut_into_sentences() -> None:
    """Sentences end before a capital letter and at a line break; long ones are cut, and short ones left out."""
    text = 'He sold 3.5 tons of it. "Why so few?" Mr. X asked!\nToo short. One two three four five six seven eight nine'

    assert list(cut(text, max_words=6)) == [
        "He sold 3.5 tons of it.",
        '"Why so few?"',
        "Mr. X asked!",
        "One two three four five six",
        "seven eight nine",
    ]
    assert list(cut("two words", max_words=9)) == []


def test_texts_are_read_from_plain_and_compressed_files(tmp_path: Path) -> None:
    """Plain text and JSON Lines give the same sequences; a limit draws some of them, by the seed."""
    rows = "".join(json.dumps({"body": sentence}) + "\n" for sentence in SENTENCES)
    (tmp_path / "a.txt").write_text("\n".join(SENTENCES))
    with gzip.open(tmp_path / "b.jsonl.gz", "wt") as file:
        file.write(rows)

    everything = read(tmp_path / "a.txt", max_words=20)

    assert everything == SENTENCES == read(tmp_path / "b.jsonl.gz", field="body", max_words=20)
    some = read(tmp_path / "a.txt", max_words=20, limit=2, seed=3)
    assert len(some) == 2
    assert set(some) < set(everything)
    assert some == read(tmp_path / "a.txt", max_words=20, limit=2, seed=3)
    with pytest.raises(FormatError, match="no row has the field 'text'"):
        read(tmp_path / "b.jsonl.gz")
    (tmp_path / "short.txt").write_text("two words\nfour\n")
    with pytest.raises(InputError, match="no sequence of at least 3 words"):
        read(tmp_path / "short.txt")


def test_the_digest_follows_the_sequences() -> None:
    """Other texts, or the same ones in another order, are recognised."""
    digests = {TextSequences(texts).digest() for texts in (["a b c", "d e f"], ["d e f", "a b c"], ["a b c d e f"])}

    assert len(digests) == 3


def test_the_parts_of_a_sequence_have_its_tokens(tokenizer: Tokenizer) -> None:
    """N-gram and rest share the tokens, and each has the frame of special tokens; the n-gram is never masked."""
    (sequence,) = tokenise(tokenizer, ["the new york times of heart"], prefix="", max_tokens=40)
    span = sequence.token_span((4, 12))
    masking = open_masking(tokenizer, share=0.9)
    views = [make_views(sequence, span, masking, np.random.default_rng(seed)) for seed in range(30)]

    assert {words(tokenizer, view.part or []) for view in views} == {"[CLS] new york [SEP]"}
    assert all(words(tokenizer, view.whole).split()[2:4] == ["new", "york"] for view in views)
    assert {place for view in views for place in view.masked} == {1, 4, 5, 6}
    for view in views:
        assert len(view.masked) == round(0.9 * 4)
        assert [sequence.ids[i] for i in view.masked] == view.targets
        assert words(tokenizer, view.rest) == "[CLS] the times of heart [SEP]"
    seen = [token for view in views for token in words(tokenizer, view.whole).split()]
    assert seen.count("[MASK]") > 60


def test_masked_tokens_are_replaced_as_in_bert(tokenizer: Tokenizer) -> None:
    """Of the masked tokens 80 in 100 become [MASK], 10 another token, none a special one, and 10 stay."""
    (sequence,) = tokenise(tokenizer, [" ".join(["heart"] * 100)], prefix="", max_tokens=200)
    masking = open_masking(tokenizer, share=0.5)
    rng = np.random.default_rng(0)
    found = [
        view.whole[i] for view in (make_views(sequence, None, masking, rng) for _ in range(40)) for i in view.masked
    ]
    heart, mask = tokenizer.token_to_id("heart"), tokenizer.token_to_id("[MASK]")

    assert len(found) == 2000
    assert found.count(mask) / 2000 == pytest.approx(0.8, abs=0.04)
    assert found.count(heart) / 2000 == pytest.approx(0.1, abs=0.03)
    assert not {0, 1, 2, 3} & set(found)
    assert make_views(sequence, None, Masking(mask, [5], 0.0), rng).masked == []


@pytest.mark.parametrize("prefix", ["", "post of "])
def test_long_sequences_are_truncated(tokenizer: Tokenizer, prefix: str) -> None:
    """The end token stays, a prefix is part of every view, and an n-gram beyond the end does not count."""
    text = "New York times of heart attack"
    (sequence,) = tokenise(tokenizer, [text], prefix=prefix, max_tokens=5 + 2 * bool(prefix), lowercase=True)
    frame = "[CLS] post of" if prefix else "[CLS]"

    assert words(tokenizer, sequence.ids) == f"{frame} new york times [SEP]"
    assert sequence.text == "new york times"
    assert sequence.token_span((15, 23)) is None
    assert sequence.token_span((0, 30)) is None  # nothing is left for the rest
    span = sequence.token_span((4, 8))
    view = make_views(sequence, span, Masking(4, [9], 0.0), np.random.default_rng(0))
    assert (words(tokenizer, view.part or []), words(tokenizer, view.rest)) == (
        f"{frame} york [SEP]",
        f"{frame} new times [SEP]",
    )


def test_spans_follow_the_offsets_of_other_tokenizers(tmp_path: Path) -> None:
    """A tokenizer that marks spaces, and that strips accents, finds the same words."""
    opened = open_tokenizer(make_albert(tmp_path / "albert") / "tokenizer.json")
    text = "the new yórk times"
    (sequence,) = tokenise(opened, [text], prefix="of ", max_tokens=40)
    span = sequence.token_span((8, 12))
    view = make_views(sequence, span, Masking(4, [9], 0.0), np.random.default_rng(0))

    assert words(opened, view.part or []) == "[CLS] \u2581of \u2581york [SEP]"
    assert words(opened, view.rest) == "[CLS] \u2581of \u2581the \u2581new \u2581times [SEP]"


def test_a_text_without_tokens_is_harmless(tokenizer: Tokenizer) -> None:
    """It has nothing to mask and no n-gram."""
    (sequence,) = tokenise(tokenizer, [""], prefix="", max_tokens=40)

    assert sequence.token_span((0, 1)) is None
    view = make_views(sequence, None, open_masking(tokenizer, share=0.5), np.random.default_rng(0))
    assert (words(tokenizer, view.whole), view.masked) == ("[CLS] [SEP]", [])


def test_a_tokenizer_without_a_mask_is_refused(tmp_path: Path) -> None:
    """Masked language modelling needs a mask token."""
    base = open_base(make_bert(tmp_path / "bert"))
    text = base.tokenizer.to_str().replace("[MASK]", "[NONE]")
    with pytest.raises(ModelError, match=r"neither \[MASK\] nor <mask>"):
        open_masking(Tokenizer.from_str(text), share=0.1)
