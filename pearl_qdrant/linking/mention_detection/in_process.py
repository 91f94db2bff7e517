"""A linker without workers, for what is itself a part of a batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.linking.mention_detection.name_case import NameCase
from pearl_qdrant.linking.options import LinkOptions
from pearl_qdrant.records import Link
from pearl_qdrant.settings import DEFAULT_LIMIT


@dataclass(frozen=True, slots=True)
class InProcessLinker:
    """What `mention_detection.annotate` needs of a linker.

    Attributes:
        encoder: The model that encodes mentions.
        links: Links mentions in this process.
        known: Those of some strings that are names, under types.
        name_case: How the base writes its names.
        spellings: Those of some strings that are names, folded, under types.
    """

    encoder: Encoder
    links: Callable[[Iterable[str], LinkOptions], Iterator[Link]]
    known: Callable[..., set[str]]
    name_case: Callable[[], NameCase]
    spellings: Callable[..., set[str]]

    def link_batch(
        self,
        mentions: Iterable[str],
        *,
        types: Sequence[str] = (),
        limit: int = DEFAULT_LIMIT,
        threshold: float | None = None,
    ) -> Iterator[Link]:
        """The links of mentions, in order."""
        return self.links(mentions, LinkOptions(types, limit=limit, threshold=threshold))

    def known_names(self, names: Sequence[str], *, types: Sequence[str] = ()) -> set[str]:
        """Those of some strings that are names of an entity."""
        return self.known(names, types=types)

    def known_spellings(self, names: Sequence[str], *, types: Sequence[str] = ()) -> set[str]:
        """Those of some strings that are names of an entity but for case, spaces and punctuation."""
        return self.spellings(names, types=types)
