"""Linkers for tests of mention detection: exact names, or every string."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pearl_qdrant import Annotation, Candidate, Link, NilReason
from pearl_qdrant.linking.mention_detection.annotate import annotate_blocks
from pearl_qdrant.linking.mention_detection.blocks import DocLike, GivenSpan, of_texts, read_blocks
from pearl_qdrant.linking.mention_detection.name_policy import NameCase
from pearl_qdrant.linking.options import AnnotateOptions, LinkOptions
from pearl_qdrant.store.schema import NamePoint

SURE = 0.97

KNOWN = [("heart attack", "mi"), ("New York", "ny"), ("York", "york")]
"""Names with their entities."""


class Names:
    """Links by exact name, ignoring case; a name of several entities is a tie."""

    types: tuple[str, ...] = ("T",)

    def __init__(self, names: Iterable[tuple[str, str]], *, probability: float = SURE) -> None:
        self.names = list(names)
        self.probability = probability
        self.calls: list[tuple[list[str], tuple[str, ...]]] = []

    def name_case(self) -> NameCase:
        return NameCase.of_points(
            NamePoint("kb", i, name, name, is_canonical=True, types=self.types) for name, i in self.names
        )

    def links(self, mentions: Iterable[str], options: LinkOptions) -> Iterator[Link]:
        wanted = list(mentions)
        self.calls.append((wanted, tuple(options.types)))
        return map(self._link, wanted)

    def possible_names(self, written: set[str], *, types: Sequence[str] = ()) -> set[str]:
        return written

    def names_by_words(self, spans: Mapping[str, object], may: object, *, types: Sequence[str] = ()) -> set[str]:
        return set(spans)

    def known_names(self, names: Sequence[str], *, types: Sequence[str] = ()) -> set[str]:
        """No name is found that shapes do not suggest."""
        return set()

    known_spellings = known_names

    def _link(self, mention: str) -> Link:
        found = [(name, i) for name, i in self.names if name.lower() == mention.lower()]
        if not found:
            return Link(mention, None, None, None, NilReason.NO_CANDIDATES)
        each = self.probability / len(found)
        is_tie = len(found) > 1
        candidates = tuple(
            Candidate(i, "kb", name, name, types=self.types, description=i, score=1.0, probability=each, tie=is_tie)
            for name, i in found
        )
        if is_tie:
            return Link(mention, None, None, None, NilReason.AMBIGUOUS, candidates)
        return Link(mention, found[0][1], found[0][0], each, None, candidates, "kb")


class Everything(Names):
    """Every string is an entity, and which ones are more probable does not matter."""

    def __init__(self) -> None:
        super().__init__([])

    def _link(self, mention: str) -> Link:
        probability = 0.5 + len(mention) % 7 / 20
        candidate = Candidate(mention, "kb", mention, mention, score=probability, probability=probability)
        return Link(mention, mention, mention, probability, None, (candidate,))


def annotate(
    linker: Any, text: str | DocLike, spans: Iterable[GivenSpan] | None = None, **keywords: Any
) -> list[Annotation]:
    """The annotations of a text, as `EntityLinker.annotate` makes them."""
    options = AnnotateOptions(**keywords)
    return [one for some in annotate_blocks(linker, read_blocks(text, options, spans), options) for one in some]


def annotate_batch(linker: Any, texts: Iterable[str | DocLike], **keywords: Any) -> Iterator[list[Annotation]]:
    """The annotations of many texts, as `EntityLinker.annotate_batch` makes them."""
    options = AnnotateOptions(**keywords)
    blocks = (block for text in texts for block in read_blocks(text, options))
    return of_texts(blocks, partial(annotate_blocks, linker, options=options))


def found(annotations: Iterable[Annotation]) -> list[tuple[str, str | None]]:
    """Text and entity of annotations."""
    return [(a.text, a.link.entity_id) for a in annotations]


def mentions(text: str, *names: str) -> list[str]:
    """The mentions found in a text by a base of some names, in lower case where a name is."""
    return [a.text for a in annotate(Names((name, name) for name in names), text)]


def differences(section: str, find: Callable[[str, list[str]], list[Annotation]]) -> dict[str, str]:
    """Texts of a section of `marked.txt` in which other mentions are found: as they are marked, and as it was found.

    `find` gets a text and the names that are marked in it.
    """
    text_of_file = Path(__file__).with_name("marked.txt").read_text("utf-8")
    lines = dict(re.findall(r"^# (.*?): .*\n((?:[^#\n].*\n)+)", text_of_file, re.MULTILINE))[section].rstrip("\n")
    different = {}
    for line in lines.split("\n"):
        marked = line.replace(r"\n", "\n").replace(r"\t", "\t")
        text = shown = re.sub(r"[][]", "", marked)
        for one in reversed(find(text, re.findall(r"\[(.*?)\]", marked))):
            shown = f"{shown[: one.start]}[{one.text}]{shown[one.end :]}"
        if shown != marked:
            different[marked] = shown
    return different
