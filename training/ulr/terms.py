"""MiSAD and MLM as further terms of another objective, over sequences of their own.

    L = L_PEARL + misad_weight L_MiSAD + mlm_weight L_MLM

The encoder is that of the network which is fine-tuned; only the MLM head is added. The vectors of MiSAD are those of
the phrase encoder alone, without the part of a character encoder.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import cached_property
from typing import Any

from torch import nn

from pearl_qdrant.errors import TrainingError
from training.events import TrainingEvents
from training.loop.distributed import shard_of_environment
from training.networks.checkpoints import BaseModel
from training.networks.phrase_vectors import device_of, find_precision
from training.ulr.drawing import UlrData, ViewDrawer, open_sequences
from training.ulr.network import MlmHead, UlrNetwork, open_head
from training.ulr.objective import UlrLosses, backward
from training.ulr.request import UlrConfig, UlrRequest
from training.ulr.views import open_masking


class UlrTerms:
    """MiSAD and MLM over sequences of their own.

    Args:
        network: Encoder and MLM head; the encoder is trained by another objective too.
        data: The sequences.
        config: Weights, sequences a step and how n-grams are chosen; its learning rate is not used.
    """

    def __init__(self, network: UlrNetwork, data: UlrData, config: UlrConfig) -> None:
        self._network, self._data, self._config = network, data, config

    @property
    def head(self) -> MlmHead:
        """The MLM head, which the encoder's network does not have."""
        return self._network.head

    @property
    def is_masked(self) -> bool:
        """Whether the MLM loss counts, so that there is a head to train."""
        return self._config.mlm_weight > 0

    def identity(self) -> dict[str, Any]:
        """Return what affects what is learnt; a run resumes only with the same."""
        config = self._config
        names = ("batch_size", "head_steps", "renormalise", "mask_share", "sampling", "n_scored", "max_tokens", "seed")
        return {"ulr": {**{name: getattr(config, name) for name in names}, **self._data.identity()}}

    def train(self, mode: bool) -> None:
        """Switch the dropout of the encoder on or off."""
        self._network.train(mode)

    def backward(self, step: int) -> UlrLosses:
        """Add the gradient of the terms of a step, from 1, to the parameters of encoder and head.

        In the first `head_steps` the terms train the MLM head alone: the gradients of a new head would spoil the
        encoder.

        Returns:
            Both terms, before their weights.
        """
        head_only = self._config.is_head_step(step)
        views = self._drawer.views(step, head_only=head_only)
        trained = [p for p in self._network.encoder.parameters() if p.requires_grad] if head_only else []
        for parameter in trained:
            parameter.requires_grad_(False)
        try:
            return backward(self._network, views, self._config, precision=self._precision, head_only=head_only)
        finally:
            for parameter in trained:
                parameter.requires_grad_(True)

    # On first use, when the network is on its device.
    @cached_property
    def _drawer(self) -> ViewDrawer:
        return ViewDrawer(self._network, self._data, self._config)

    @cached_property
    def _precision(self) -> str:
        return find_precision(self._config.precision, device_of(self._network))


def open_terms(
    base: BaseModel, request: UlrRequest, *, steps: int, dropout: bool, events: TrainingEvents, stack: ExitStack
) -> UlrTerms:
    """Open the terms for a network that is fine-tuned.

    Args:
        base: Its phrase encoder is trained.
        request: Names the sequences, the weights and the other settings of ULR.
        steps: Optimizer steps of the run.
        dropout: Whether the network's dropout is on.
        events: Gets `examples_read`.
        stack: Closes what is opened.

    Raises:
        OptionError: If arguments contradict each other.
        InputError: If an input cannot be read, or has nothing to learn from.
        ModelError: If the encoder has no MLM head that can be made, or its tokenizer no mask token.
        TrainingError: If there are several processes.
    """
    request.check()
    if shard_of_environment().world_size > 1:
        raise TrainingError("MiSAD and MLM are trained in one process. Start the run without torchrun")
    encoder: nn.Module = base.network.phrase_encoder
    head, has_head = open_head(encoder, sorted(base.folder.glob("*.safetensors")), seed=request.seed)
    pooling: Any = base.network.pooling
    config = request.config(
        steps=steps,
        head_steps=request.find_head_steps(steps, has_head=has_head),
        pooling=pooling,
        max_tokens=request.max_tokens,
        dropout=dropout,
    )
    sequences, digest = open_sequences(request, events, stack)
    masking = open_masking(
        base.tokenizer, share=config.mask_share if config.mlm_weight else 0.0, on_rest=config.mlm_on_rest
    )
    data = UlrData(
        sequences, base.tokenizer, masking, prefix=base.config.prefix, digest=digest, limit=request.sequences
    )
    return UlrTerms(UlrNetwork(encoder, head, pooling=pooling), data, config)
