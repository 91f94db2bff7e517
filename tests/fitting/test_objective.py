"""The losses, what is masked in them, and the batches that they are computed on."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from pearl_qdrant.phrase_types import PHRASE_TYPES
from training.augment.draw import Augmenter
from training.batches import BatchMaker, EpochSampler, NegativeTable, Shard
from training.examples.example import Example, any_class, one_class
from training.finetune.losses import marginal_type_loss, nt_xent, same_meaning
from training.finetune.objective import batch_losses
from training.finetune.request import PAPER, FitConfig


def generator(seed: int = 0) -> torch.Generator:
    """A seeded source of random numbers."""
    return torch.Generator().manual_seed(seed)


def naive_nt_xent(
    anchors: torch.Tensor, positives: torch.Tensor, negatives: torch.Tensor, temperature: float, same: torch.Tensor
) -> float:
    """Eq. 2 as a loop over rows."""
    columns = [row / row.norm() for row in torch.cat([anchors, positives, negatives])]
    n = len(anchors)
    total = 0.0
    for i, row in enumerate(columns[: 2 * n]):
        partner = (i + n) % (2 * n)
        others = [j for j in range(len(columns)) if j not in (i, partner) and not same[i, j]]
        terms = [math.exp(float(row @ columns[j]) / temperature) for j in [partner, *others]]
        total -= math.log(terms[0] / sum(terms))
    return total / (2 * n)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("n_negatives", [0, 4])
def test_the_contrastive_loss_equals_its_naive_loop(masked: bool, n_negatives: int) -> None:
    """The loss is Eq. 2, with and without hard negatives and masked false negatives."""
    anchors, positives = torch.randn(2, 6, 5, generator=generator())
    negatives = torch.randn(n_negatives, 5, generator=generator(1))
    same = torch.zeros(12, 12 + n_negatives, dtype=torch.bool)
    if masked:
        same[1, 4] = same[4, 1] = same[7, 2] = True
        same[3, -1] = True
    loss = nt_xent(
        anchors,
        positives,
        temperature=0.07,
        negatives=negatives if n_negatives else None,
        same=same if masked else None,
    )

    assert loss.item() == pytest.approx(naive_nt_xent(anchors, positives, negatives, 0.07, same), rel=1e-4)


def test_the_type_loss_is_cross_entropy_with_one_label_and_marginal_with_several() -> None:
    """One label is Eq. 3; several allowed labels share the likelihood; none does not count."""
    logits = torch.randn(3, 95, generator=generator())
    one = torch.zeros(3, 95, dtype=torch.bool)
    one[torch.arange(3), torch.tensor([4, 7, 90])] = True
    expected = torch.nn.functional.cross_entropy(logits, torch.tensor([4, 7, 90]))
    assert marginal_type_loss(logits, one).item() == pytest.approx(expected.item(), rel=1e-5)

    several = one.clone()
    several[0, 23] = True
    several[2] = False
    p = logits.softmax(1)
    by_hand = -(torch.log(p[0, 4] + p[0, 23]) + torch.log(p[1, 7])) / 2
    assert marginal_type_loss(logits, several).item() == pytest.approx(by_hand.item(), rel=1e-5)
    assert marginal_type_loss(logits, torch.zeros(3, 95, dtype=torch.bool)).item() == 0


def maker(examples: list[Example], **changes: Any) -> BatchMaker:
    """Batches of all examples at once, each once an epoch."""
    known: dict[str, Any] = {"n_pairs": len(examples), "seed": 0, "augment": Augmenter(), **changes}
    return BatchMaker(EpochSampler(examples, seed=known["seed"]), **known)


def test_rows_of_one_entity_or_one_string_are_no_negatives() -> None:
    """Names of one entity, names that differ only in case, and a hard negative of the same entity are masked."""
    examples = [
        Example("Alpha One", (), "1"),
        Example("ALPHA-ONE", (), "2"),
        Example("beta", (), "3"),
        Example("delta", (), "3"),
        Example("epsilon", (), ""),
        Example("zeta", (), ""),
    ]
    known = {"gamma": Example("gamma", (), "3"), "Beta.": Example("Beta.", (), "9")}
    table = NegativeTable([("beta", ["gamma"]), ("epsilon", ["Beta."])], known=known)
    batch = maker(examples, augment=lambda name, _: name, negatives=table).make(1)
    pairs = (batch.entities, batch.anchor_keys, batch.positive_keys)
    same = same_meaning(*map(torch.from_numpy, (*pairs, batch.negative_entities, batch.negative_keys)))
    place = {name: i for i, name in enumerate(batch.anchors)}
    column = {name: 12 + i for i, name in enumerate(batch.negatives)}

    assert same[place["Alpha One"], place["ALPHA-ONE"]], "one string when folded"
    assert same[place["beta"], 6 + place["delta"]], "one entity"
    assert not same[place["epsilon"], place["zeta"]], "two unknown entities are not one"
    assert same[place["delta"], column["gamma"]], "a hard negative of the same entity"
    assert same[place["beta"], column["Beta."]], "a hard negative that is the same string"
    assert not same[place["epsilon"], column["gamma"]]


def test_the_objective_is_the_sum_of_its_parts() -> None:
    """Eq. 4: the contrastive loss and the weighted type loss of both views."""
    examples = [Example(f"name {i}", (), str(i), one_class("NP", ["ORG" if i % 2 else "GPE"])) for i in range(6)]
    batch = maker(examples).make(1)
    vectors = torch.randn(12, 8, generator=generator())
    head = torch.nn.Linear(8, 95, bias=False)
    total, losses = batch_losses(vectors, batch, head, FitConfig(steps=1, type_weight=0.5))
    contrastive = nt_xent(vectors[:6], vectors[6:], temperature=0.07)
    types = marginal_type_loss(head(vectors), torch.from_numpy(batch.allowed).repeat(2, 1))

    assert total.item() == pytest.approx((contrastive + 0.5 * types).item(), rel=1e-5)
    assert losses["contrastive"].item() == pytest.approx(contrastive.item(), rel=1e-5)
    assert losses["type_loss"].item() == pytest.approx(types.item(), rel=1e-5)


def test_plain_phrases_are_distilled_and_nothing_else() -> None:
    """Their first columns are compared with the teacher's vectors; the contrastive loss does not see them."""
    examples = [Example(f"name {i}", (), str(i)) for i in range(4)]
    batch = replace(maker(examples).make(1), plain=["in the end", "of which"])
    vectors = torch.randn(10, 8, generator=generator())

    start = torch.stack([vectors[8, :6] * 3, -vectors[9, :6]])
    config = FitConfig(steps=1, type_weight=0.0, distil_weight=0.5)
    total, losses = batch_losses(vectors, batch, None, config, wanted=start)
    total_alone, alone = batch_losses(vectors[:8], replace(batch, plain=[]), None, config)

    assert losses["distillation"].item() == pytest.approx(1.0), "the mean of 0 and 2"
    assert losses["contrastive"].item() == pytest.approx(alone["contrastive"].item())
    assert total.item() == pytest.approx(total_alone.item() + 0.5)
    with pytest.raises(ValueError, match="cannot be distilled"):
        batch_losses(vectors, batch, None, config, wanted=torch.ones(2, 9))


def test_the_paper_settings_mask_nothing_and_decay_as_in_the_paper() -> None:
    """`--paper-settings`: Adam at 3e-5 for all, x 0.98 every 2,000 steps, temperature 0.07, no mask."""
    config = FitConfig(steps=10_000, **PAPER)

    assert (config.learning_rate, config.temperature, config.optimizer, config.mask) == (3e-5, 0.07, "adam", "none")
    assert (config.head_rate, config.character_rate, config.type_weight) == (1, 1, 1)
    assert [config.rate(step) for step in (1, 2000, 2001, 4001)] == pytest.approx([1, 1, 0.98, 0.98**2])


def test_the_cosine_schedule_warms_up_and_ends_at_nothing() -> None:
    """The other schedule rises over the first 5 % and falls to zero."""
    config = FitConfig(steps=100, schedule="cosine")
    rates = [config.rate(step) for step in range(1, 101)]

    assert rates[:5] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])
    assert rates[5:] == sorted(rates[5:], reverse=True)
    assert rates[-1] < 0.001


def test_an_epoch_takes_each_example_once_over_all_processes() -> None:
    """Two processes together see every phrase once an epoch, in another order in the next."""
    examples = [Example(f"name {i}", (), str(i)) for i in range(24)]
    makers = [maker(examples, n_pairs=4, shard=Shard(rank, 2)) for rank in (0, 1)]
    epochs = [[a for step in steps for m in makers for a in m.make(step).anchors] for steps in ((1, 2, 3), (4, 5, 6))]

    assert sorted(epochs[0]) == sorted(epochs[1]) == sorted(e.name for e in examples)
    assert epochs[0] != epochs[1]


def test_hard_negatives_join_the_batch_as_columns_or_as_pairs() -> None:
    """Two hard negatives are drawn for each anchor; with the paper's code each has a variant."""
    kinds = any_class(["ORG"])
    examples = [Example("New York Times", (), "1"), Example("heart attack", (), "2")]
    negatives = [f"New York {i}" for i in range(12)]
    table = NegativeTable(
        [("New York Times", negatives)], known={name: Example(name, (), name, kinds) for name in negatives}
    )
    columns = maker(examples, negatives=table).make(1)
    pairs = maker(examples, negatives=table, negatives_as_pairs=True).make(1)

    assert len(columns.negatives) == len(set(columns.negatives)) == 2
    assert set(columns.negatives) < set(negatives)
    assert (len(pairs.anchors), pairs.negatives) == (4, [])
    assert set(pairs.anchors[2:]) < set(negatives)
    assert [PHRASE_TYPES[i] for i in np.flatnonzero(pairs.allowed[2])] == [PHRASE_TYPES[i] for i in sorted(kinds)]
    assert table.draw("unknown", 2, random.Random(0)) == []


EXAMPLES = [Example(f"heart attack {i}", (f"coronary {i}",), str(i)) for i in range(40)]


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_other_names_are_augmented_as_often_as_requested(share: float) -> None:
    """With `augmented_aliases` an alias is misspelt like any mention; without, it is unchanged."""
    with_capitals = {"augment": lambda name, _: name.upper(), "augmented_aliases": share}
    batch = maker(EXAMPLES, alias_share=1.0, **with_capitals).make(1)

    assert {name.isupper() for name in batch.positives} == {share == 1.0}
    pairs = zip(batch.anchors, batch.positives, strict=True)
    assert all(anchor.casefold() != other.casefold() for anchor, other in pairs)
