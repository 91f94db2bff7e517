"""Augmentation, numbers, averaging and the type head, on tiny random data."""

from __future__ import annotations

import random
import re
from pathlib import Path

import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny_models import make_bert

from pearl_qdrant.encoder.runtime.network import load_phrase_encoder
from training.augment.draw import abbreviate, augment, augment_or_abbreviate
from training.examples.example import one_class
from training.examples.numbers import number_names
from training.head import fit_head, score_types
from training.networks.checkpoints import average_weights


def generator(seed: int = 0) -> torch.Generator:
    """A seeded source of random numbers."""
    return torch.Generator().manual_seed(seed)


@given(st.text(min_size=1), st.integers(0, 2**32))
def test_no_variant_is_ever_empty(phrase: str, seed: int) -> None:
    """A variant is blank only if the phrase is."""
    for make_variant in (augment, augment_or_abbreviate):
        assert make_variant(phrase, random.Random(seed)).strip() or not phrase.strip()


def test_proper_names_are_abbreviated_as_people_do() -> None:
    """Short forms join initials and words; other phrases stay as they are."""
    made = {abbreviate("The New York Times", random.Random(i)) for i in range(1000)}

    assert {"NYTimes", "NY Times", "NYT", "nytimes.com"} <= made
    assert abbreviate("heart attack", random.Random(0)) == "heart attack"


def test_variants_are_seeded() -> None:
    """The same seed gives the same training data."""
    first = [augment("The New York Times", random.Random(i)) for i in range(50)]

    assert first == [augment("The New York Times", random.Random(i)) for i in range(50)]
    assert len(set(first)) > 10


def test_numbers_are_written_in_many_ways() -> None:
    """Each of the seven numeric types has many distinct names, the same for the same seed."""
    made = list(number_names(500, random.Random(1)))

    assert made == list(number_names(500, random.Random(1)))
    for kind in ("CARDINAL", "DATE", "TIME", "MONEY", "PERCENT", "QUANTITY", "ORDINAL"):
        assert len({name for name, t in made if t == kind}) > 100, kind
    assert len(made) == len(set(made)), "each name occurs once for its type"
    assert all(name == name.strip() != "" for name, _ in made)


def test_numbers_are_well_formed() -> None:
    """No unit is half of one, and the season after 1999 ends in 00."""
    made = [name for name, _ in number_names(20_000, random.Random(2))]

    assert not [name for name in made if name.endswith((" square", " cubic"))]
    assert any(name.endswith(" square kilometres") for name in made)
    seasons = [name for name in made if re.fullmatch(r"\d{4}-\d+", name)]
    assert all(int(name[5:]) == (int(name[:4]) + 1) % 100 and len(name) == 7 for name in seasons)
    assert any(name[2:4] == "99" for name in seasons)


def test_averaging_mixes_the_encoders(tmp_path: Path) -> None:
    """Half and half is the mean of the two; the ends are the encoders themselves."""
    original = load_phrase_encoder(make_bert(tmp_path / "a", seed=1))
    tuned = load_phrase_encoder(make_bert(tmp_path / "b", seed=2))
    before = {k: v.clone() for k, v in tuned.state_dict().items()}
    average_weights(original, tuned, ratio=0.25)

    key = "encoder.layer.0.output.dense.weight"
    expected = 0.25 * before[key] + 0.75 * original.state_dict()[key]
    assert torch.allclose(tuned.state_dict()[key], expected, atol=1e-6)


def test_a_head_learns_what_can_be_told_apart() -> None:
    """The head separates two clouds of vectors, and the scores show it."""
    vectors = torch.randn(400, 8, generator=generator())
    vectors[:, 0] += torch.tensor([4.0, -4.0]).repeat_interleave(200)
    allowed = torch.zeros(400, 95, dtype=torch.bool)
    allowed[:200, list(one_class("NP", ["ORG"]))] = True
    allowed[200:, list(one_class("NP", ["GPE"]))] = True
    head = fit_head(vectors, allowed, weights=torch.ones(400), epochs=200, batch=64, generator=generator())
    scores = score_types(head(vectors), [{"ORG"}] * 200 + [{"GPE", "LOC"}] * 200)

    assert scores.accuracy > 0.98
    assert scores.macro_f1 > 0.98
    assert scores.n == 400
