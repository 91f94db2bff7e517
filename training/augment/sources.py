"""The files that augmentation draws from; each process that augments opens them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from ingest.io.report import ReadReport
from training.augment.draw import AugmentationMix, Augmenter
from training.augment.synonyms import Synonyms, wordnet_synonyms
from training.augment.tables import VariantTable
from training.corpus.files import ENTITIES, PHRASE_VARIANTS, WORD_VARIANTS, read_variants

NEIGHBOURS = "word_neighbours.jsonl"
"""Neighbours of words in a space of word vectors, in the form of token_aug.jsonl."""


@dataclass(frozen=True, slots=True)
class AugmentationSources:
    """Paths of synonyms, paraphrases and aliases; small enough to send to a worker, which opens the files.

    Attributes:
        wordnet: A WordNet `dict` folder.
        neighbours: `word_neighbours.jsonl`, read into memory.
        token_variants: Files in the format of `token_aug.jsonl`: whole phrases with synonyms inserted.
        paraphrases: Files of variants or entities, searched in this order.
        mix: Weights of the levels.
    """

    wordnet: Path | None = None
    neighbours: Path | None = None
    token_variants: tuple[Path, ...] = ()
    paraphrases: tuple[Path, ...] = ()
    mix: AugmentationMix = field(default_factory=AugmentationMix)

    @classmethod
    def of_corpus(
        cls, folder: Path, *, wordnet: Path | None = None, mix: AugmentationMix | None = None
    ) -> AugmentationSources:
        """Find the files of a corpus, aliases before paraphrases."""
        neighbours = folder / NEIGHBOURS
        return cls(
            wordnet=wordnet,
            neighbours=neighbours if neighbours.exists() else None,
            token_variants=tuple(path for path in [folder / WORD_VARIANTS] if path.exists()),
            paraphrases=tuple(path for path in (folder / ENTITIES, folder / PHRASE_VARIANTS) if path.exists()),
            mix=mix or AugmentationMix(),
        )

    def open(self) -> Augmenter:
        """Read the files that are kept in memory, and index the others.

        Raises:
            FormatError: If a file is missing or has another format.
        """
        pairs: list[Iterable[tuple[str, Iterable[str]]]] = []
        if self.wordnet is not None:
            pairs.append(wordnet_synonyms(self.wordnet))
        if self.neighbours is not None:
            pairs.append(read_variants(self.neighbours, ReadReport()))
        return Augmenter(
            self.mix,
            synonyms=Synonyms(chain.from_iterable(pairs)) if pairs else None,
            token_variants=[VariantTable(path) for path in self.token_variants],
            paraphrases=[VariantTable(path) for path in self.paraphrases],
        )
