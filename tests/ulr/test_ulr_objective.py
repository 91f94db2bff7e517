"""The objective of ULR against a naive computation by transformers, sequence by sequence."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor
from ulr_cases import config, make_masked_lm, open_base, views_of

from training.ulr.drawing import Views
from training.ulr.objective import HEAD_NAMES, backward, head_tensors, misad

WAYS: list[tuple[Any, bool, bool, int]] = [
    ("mean", False, False, 2),
    ("cls", True, False, 5),
    ("max", False, True, 1),
    ("mean", True, True, 3),
]
"""Pooling, whether the sum is scaled, whether the rest has masks, sequences per pass."""

QUICK = {("bert", 0), ("bert", 1), ("bert", 2), ("albert", 3), ("electra", 1)}
"""Kinds of encoder and ways that every run of the tests has: each kind and each way."""


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Makes a tiny model of a kind with its MLM head, once."""
    folder = tmp_path_factory.mktemp("models")
    return functools.cache(lambda kind: make_masked_lm(folder / kind, kind))


def reference(model: Any, views: list[Views], *, pooling: str, renormalise: bool) -> tuple[Tensor, Tensor]:
    """MiSAD and MLM loss of a batch: one sequence at a time, through the whole model with its own head."""

    def run(ids: list[int]) -> tuple[Tensor, Tensor]:
        found = model(input_ids=torch.tensor([ids]), output_hidden_states=True)
        tokens = found.hidden_states[-1][0]
        pooled = {"cls": tokens[0], "mean": tokens.mean(0), "max": tokens.max(0).values}[pooling]
        return pooled / pooled.norm(), found.logits[0].log_softmax(-1)

    errors, surprises = [], []
    for view in views:
        whole, log_chances = run(view.whole)
        surprises += [-log_chances[i, t] for i, t in zip(view.masked, view.targets, strict=True)]
        if view.part is None:
            continue
        rest, rest_chances = run(view.rest)
        total = run(view.part)[0] + rest
        if renormalise:
            total = total / total.norm()
        errors += [((total - whole) ** 2).sum() / len(whole)]
        surprises += [-rest_chances[i, t] for i, t in zip(view.rest_masked, view.rest_targets, strict=True)]
    return torch.stack(errors).mean(), torch.stack(surprises).mean()


@pytest.mark.parametrize(
    "kind, way",
    [
        pytest.param(kind, way, marks=() if (kind, i) in QUICK else pytest.mark.slow)
        for kind in ("bert", "albert", "electra")
        for i, way in enumerate(WAYS)
    ],
)
def test_losses_and_gradients_equal_a_naive_computation(
    folders: Callable[[str], Path], kind: str, way: tuple[Any, bool, bool, int]
) -> None:
    """Losses and the gradient of every weight are those of the formula, however a batch is divided."""
    folder, (pooling, renormalise, on_rest, micro_batch) = folders(kind), way
    base = open_base(folder, pooling=pooling)
    views = views_of(base, on_rest=on_rest)
    settings = config(
        pooling=pooling, renormalise=renormalise, misad_weight=30.0, mlm_weight=0.5, micro_batch=micro_batch
    )
    model: Any = transformers.AutoModelForMaskedLM.from_pretrained(folder).eval()
    error, surprise = reference(model, views, pooling=pooling, renormalise=renormalise)
    torch.autograd.backward(30.0 * error + 0.5 * surprise)

    network = base.network.eval()
    found = backward(network, views, settings)

    assert found.n_spans == 4
    assert found.misad == pytest.approx(error.item(), rel=1e-4)
    assert found.mlm == pytest.approx(surprise.item(), rel=1e-4)
    theirs = dict(model.named_parameters())
    for name, parameter in network.encoder.named_parameters():
        gradient = theirs[f"{model.base_model_prefix}.{name}"].grad
        assert (parameter.grad is None) == (gradient is None), name
        if gradient is not None:
            torch.testing.assert_close(parameter.grad, gradient, rtol=1e-3, atol=1e-5, msg=name)
    for parameter in network.head.parameters():
        assert parameter.grad is not None
        parameter.data.copy_(parameter.grad)
    for name, gradient in head_tensors(network.head, HEAD_NAMES[model.config.model_type]).items():
        torch.testing.assert_close(gradient, theirs[name].grad, rtol=1e-3, atol=1e-5, msg=name)


def test_misad_is_zero_where_the_vectors_add_up() -> None:
    """Two unit vectors at 120 degrees add up to a unit vector, at any length; with renormalising any angle does."""
    whole = torch.tensor([[0.0, 3.0]])
    wide = torch.tensor([[0.75**0.5, 0.5]]), torch.tensor([[-(0.75**0.5) * 7, 3.5]])
    narrow = torch.tensor([[1.0, 1.0]]), torch.tensor([[-5.0, 5.0]])

    assert misad(*wide, whole).item() == pytest.approx(0, abs=1e-10)
    assert misad(*narrow, whole).item() == pytest.approx((2**0.5 - 1) ** 2 / 2)
    assert misad(*narrow, whole, renormalise=True).item() == pytest.approx(0, abs=1e-10)


def test_sequences_are_held_where_they_were(folders: Callable[[str], Path]) -> None:
    """With `hold`, the start's vector of the sequence without masks is the target of n-gram and rest, and of it."""
    base, start = open_base(folders("bert")), open_base(folders("bert"))
    network, before = base.network.eval(), start.network.eval().requires_grad_(False)
    with torch.no_grad():
        for i, parameter in enumerate(network.parameters()):
            parameter.add_(0.02 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(i)))
    views = views_of(base)

    def unit(model: Any, ids: list[int]) -> Tensor:
        tokens = model.encoder(input_ids=torch.tensor([ids])).last_hidden_state[0]
        return tokens.mean(0) / tokens.mean(0).norm()

    errors = []
    for view in views:
        if view.part is not None:
            plain = [dict(zip(view.masked, view.targets, strict=True)).get(i, t) for i, t in enumerate(view.whole)]
            goal = unit(before, plain)
            apart = (unit(network, view.part) + unit(network, view.rest) - goal).square().mean()
            errors.append(apart + 3 * (unit(network, plain) - goal).square().mean())
    expected = torch.stack(errors).mean()
    torch.autograd.backward(7 * expected)
    gradients = {name: p.grad.clone() for name, p in network.encoder.named_parameters() if p.grad is not None}
    network.zero_grad()
    found = backward(
        network, views, config(micro_batch=2, misad_weight=7.0, mlm_weight=0.0, hold=3.0), start=start.network
    )

    assert found.misad == pytest.approx(expected.item(), rel=1e-4)
    for name, parameter in network.encoder.named_parameters():
        if name in gradients:
            torch.testing.assert_close(parameter.grad, gradients[name], rtol=1e-3, atol=1e-6, msg=name)


def test_one_term_alone_can_be_trained(folders: Callable[[str], Path]) -> None:
    """Without masks only MiSAD is computed, and without n-grams only the MLM loss; the head alone needs no n-gram."""
    base = open_base(folders("bert"))
    network = base.network.eval()
    views = views_of(base)
    bare = [Views(v.whole, [], [], v.part, v.rest) for v in views]
    whole = [Views(v.whole, v.masked, v.targets) for v in views]

    assert (backward(network, bare, config()).mlm, backward(network, whole, config()).misad) == (0, 0)
    network.zero_grad()
    network.encoder.requires_grad_(False)
    losses = backward(network, views_of(base, on_rest=True), config(), head_only=True)
    assert (losses.misad, losses.n_spans) == (0, 0)
    assert losses.mlm == pytest.approx(backward(network, whole, config()).mlm)
    assert all(parameter.grad is None for parameter in network.encoder.parameters())
    assert all(parameter.grad is not None for parameter in network.head.parameters())
