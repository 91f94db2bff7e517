"""A linker without workers, for what is itself a part of a batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.linking.mention_detection.name_policy import NameCase
from pearl_qdrant.records import Link


@dataclass(frozen=True, slots=True)
class InProcessLinker:
    """What `mention_detection.annotate` needs of a linker.

    Attributes:
        encoder: The model that encodes mentions.
        link_batch: Links mentions in this process.
        known_names: Those of some strings that are names, under types.
        name_case: How the base writes its names.
        known_spellings: Those of some strings that are names but for case, spaces and punctuation, under types.
    """

    encoder: Encoder
    link_batch: Callable[..., Iterator[Link]]
    known_names: Callable[..., set[str]]
    name_case: Callable[[], NameCase]
    known_spellings: Callable[..., set[str]]
