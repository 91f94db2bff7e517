"""The n-gram of a sequence that is set against its rest, by each strategy."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from tiny_models import make_bert
from tokenizers import Tokenizer

from pearl_qdrant.errors import CheckpointError
from training.ngrams.files import MarkedSequence, NgramSpan
from training.ngrams.mlm_score import MlmScorer
from training.ngrams.sampling import choose_spans, draw_random_span

TEXT = "The New York Times of New York"
TIMES = NgramSpan(4, 18, 3, 3.0)
CITY = NgramSpan(4, 12, 2, 2.5, is_entity=True)
AGAIN = NgramSpan(22, 30, 2, 2.5)
NAME = NgramSpan(13, 18, 1, None, is_entity=True)
WHOLE = NgramSpan(0, 30, 7, 9.0)
MARKED = MarkedSequence(TEXT, (WHOLE, CITY, TIMES, NAME, AGAIN), 7)
NONE = MarkedSequence("Paris", (NgramSpan(0, 5, 1, None, is_entity=True),), 1)


def test_the_ngram_of_the_lowest_score_is_chosen() -> None:
    """All n-grams of all sequences are scored in one call; of equal scores the first counts, and NaN never does."""
    calls = []

    def score(texts: Sequence[str], spans: Sequence[tuple[int, int]]) -> list[float]:
        calls.append([text[start:end] for text, (start, end) in zip(texts, spans, strict=True)])
        return [float("nan"), 0.2, 0.1, 0.1]

    chosen = choose_spans([NONE, MARKED], "lowest_score", rng=random.Random(0), score=score)
    assert chosen == [None, NAME]
    assert calls == [["New York", "New York Times", "Times", "New York"]]
    with pytest.raises(ValueError, match="4 scores for 3 spans"):
        choose_spans([MARKED], "lowest_score", rng=random.Random(0), score=score, entities=False)
    with pytest.raises(ValueError, match="needs a scorer"):
        choose_spans([MARKED], "lowest_score", rng=random.Random(0))
    assert choose_spans([NONE], "lowest_score", rng=random.Random(0), score=score) == [None]


def test_an_ngram_is_drawn_at_random() -> None:
    """Each n-gram that leaves a rest is as likely as another; the seed decides."""
    rng = random.Random(1)
    drawn = Counter(choose_spans([MARKED] * 4000, "random_ngram", rng=rng))

    assert drawn.keys() == {CITY, TIMES, NAME, AGAIN}
    assert all(900 < count < 1100 for count in drawn.values())
    assert choose_spans([MARKED] * 9, "random_ngram", rng=random.Random(3)) == choose_spans(
        [MARKED] * 9, "random_ngram", rng=random.Random(3)
    )
    without = choose_spans([MARKED] * 100, "random_ngram", rng=rng, entities=False)
    assert set(without) == {CITY, TIMES, AGAIN}
    assert choose_spans([NONE], "random_ngram", rng=rng) == [None]


def test_an_entity_is_drawn_at_random() -> None:
    """Only entity mentions are drawn."""
    chosen = choose_spans([MARKED] * 100 + [NONE], "entity", rng=random.Random(0))

    assert set(chosen[:-1]) == {CITY, NAME}
    assert chosen[-1] is None


def test_random_spans_have_geometric_lengths() -> None:
    """Lengths follow the geometric distribution with 0.2, cut off after 6 words, and each place is as likely."""
    text = " ".join(f"w{i}" for i in range(10))
    rng, n = random.Random(2), 20_000
    spans = [draw_random_span(text, rng) for _ in range(n)]
    lengths = Counter(span.words for span in spans if span)
    whole = 1 - 0.8**6

    assert sorted(lengths) == [1, 2, 3, 4, 5, 6]
    for words, count in lengths.items():
        assert count / n == pytest.approx(0.2 * 0.8 ** (words - 1) / whole, abs=0.015)
    firsts = Counter(span.start for span in spans if span and span.words == 1)
    assert len(firsts) == 10
    assert all(len(text[span.start : span.end].split()) == span.words for span in spans if span)


def test_a_random_span_leaves_a_rest() -> None:
    """A sequence of one word has no span, and one of two has spans of one word."""
    rng = random.Random(0)

    assert draw_random_span("Paris!", rng) is None
    assert {draw_random_span("New York!", rng) for _ in range(20)} == {NgramSpan(0, 3, 1), NgramSpan(4, 8, 1)}
    assert draw_random_span("New York!", rng, probability=1.0) in {NgramSpan(0, 3, 1), NgramSpan(4, 8, 1)}
    assert choose_spans([NONE], "random_span", rng=rng) == [None]
    with pytest.raises(ValueError, match="probability is 0"):
        draw_random_span("New York", rng, probability=0)
    with pytest.raises(ValueError, match="strategy is 'best'"):
        choose_spans([MARKED], "best", rng=rng)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny BERT with a head of a masked language model."""
    from transformers import BertConfig, BertForMaskedLM

    plain = make_bert(tmp_path_factory.mktemp("plain") / "bert")
    folder = tmp_path_factory.mktemp("mlm")
    torch.manual_seed(0)
    BertForMaskedLM(BertConfig.from_pretrained(plain, initializer_range=0.5)).save_pretrained(folder)
    (folder / "tokenizer.json").write_bytes((plain / "tokenizer.json").read_bytes())
    return folder


def naive_score(folder: Path, text: str, span: tuple[int, int]) -> float:
    """One sequence at a time, without padding: the mean probability of the tokens that were masked."""
    from transformers import BertForMaskedLM

    encoding = Tokenizer.from_file(str(folder / "tokenizer.json")).encode(text)
    inside = [
        i for i, (start, end) in enumerate(encoding.offsets) if start < end and span[0] <= start and end <= span[1]
    ]
    ids = torch.tensor([[4 if i in inside else token for i, token in enumerate(encoding.ids)]])
    with torch.no_grad():
        probabilities = BertForMaskedLM.from_pretrained(folder).eval()(input_ids=ids).logits[0].softmax(-1)
    return sum(float(probabilities[i, encoding.ids[i]]) for i in inside) / len(inside)


def test_scores_are_those_of_one_sequence_at_a_time(folder: Path) -> None:
    """Batches, padding and order make no difference to the score of section 3.3."""
    scorer = MlmScorer.open(folder, batch=2)
    texts = [TEXT, "New York.", TEXT, "a heart attack in New York"]
    spans = [(4, 18), (0, 8), (22, 30), (2, 14)]

    assert scorer(texts, spans) == pytest.approx(
        [naive_score(folder, *one) for one in zip(texts, spans, strict=True)], rel=1e-4
    )
    assert scorer([], []) == []
    lowest = min((CITY, TIMES, NAME, AGAIN), key=lambda span: naive_score(folder, TEXT, (span.start, span.end)))
    assert choose_spans([MARKED], "lowest_score", rng=random.Random(0), score=scorer) == [lowest]


def test_a_span_that_is_cut_off_has_no_score(folder: Path) -> None:
    """Nor has one without a token; the others of the sequence do."""
    scorer = MlmScorer.open(folder, max_tokens=6)
    scores = scorer([TEXT] * 3, [(4, 12), (22, 30), (3, 4)])

    assert 0 < scores[0] < 1
    assert scores[1] != scores[1]
    assert scores[2] != scores[2]


def test_a_model_in_training_goes_on_training() -> None:
    """Dropout is off while it scores, and on again afterwards; no gradient is kept."""

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(1))

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> SimpleNamespace:
            assert not self.training
            assert not torch.is_grad_enabled()
            return SimpleNamespace(logits=self.weight * torch.ones(*input_ids.shape, 200))

    class Encoding(SimpleNamespace):
        ids, offsets, special_tokens_mask = [1, 7, 2], [(0, 0), (0, 3), (0, 0)], [1, 0, 1]

    model = Model().train()
    scorer = MlmScorer(model, SimpleNamespace(encode=lambda text: Encoding()), mask_id=4)  # type: ignore[arg-type]

    assert scorer(["new"], [(0, 3)]) == pytest.approx([1 / 200])
    assert model.training


def test_a_model_without_head_is_refused(folder: Path, tmp_path: Path) -> None:
    """Random weights of a head would give random n-grams."""
    with pytest.raises(CheckpointError, match="has no trained head"):
        MlmScorer.open(make_bert(tmp_path / "bert"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(CheckpointError, match=r"tokenizer\.json"):
        MlmScorer.open(tmp_path / "empty")
    (tmp_path / "empty" / "tokenizer.json").write_bytes((folder / "tokenizer.json").read_bytes())
    with pytest.raises(CheckpointError, match="cannot be loaded"):
        MlmScorer.open(tmp_path / "empty")
