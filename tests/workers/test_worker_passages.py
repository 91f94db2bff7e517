"""Passages that worker processes annotate are annotated as by one process."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
from worker_cases import assert_same

from pearl_qdrant import Annotation, EntityLinker
from pearl_qdrant.errors import UnknownTypeError
from pearl_qdrant.linking import workers as pool
from pearl_qdrant.linking.mention_detection.blocks import DocLike

TEXTS = [
    "She read the NYTimes in New York.",
    "",
    "A heart attack (HA) is no joke. After the HA he moved to the Big Apple.",
    "Nothing here",
    "The New York Post wrote of it, and nypost.com too.",
    "NYC, NYC, NYC",
    "He had myocardial infarction in New York State.",
]


@dataclass(frozen=True)
class Entity:
    """An entity of a `Doc`, which cannot be sent."""

    start_char: int
    end_char: int
    of: Any = None


class Doc:
    """As spaCy's, with entities."""

    def __init__(self, text: str, *spans: tuple[int, int]) -> None:
        self.text = text
        self.ents = [Entity(*span, of=lambda: self) for span in spans]


def assert_same_annotations(found: list[list[Annotation]], expected: list[list[Annotation]]) -> None:
    """Annotations are equal, their numbers almost."""
    ours, theirs = ([one for of_text in texts for one in of_text] for texts in (found, expected))
    assert [len(one) for one in found] == [len(one) for one in expected]
    assert [replace(one, link=its.link) for one, its in zip(ours, theirs, strict=True)] == theirs
    mentions = [its.link.mention for its in theirs]
    links = [replace(one.link, mention=mention) for one, mention in zip(ours, mentions, strict=True)]
    assert [one.link.mention for one in ours] == mentions
    assert_same(links, [its.link for its in theirs])


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"types": ["ORG"], "include_nil": True},
        {"nested": True, "threshold": 0.1},
        {"document": True, "threshold": 0.0},
        {"context": "A newspaper", "on_tie": "first"},
    ],
    ids=lambda options: " ".join(options) or "default",
)
def test_workers_annotate_as_one_process(reader: EntityLinker, options: dict[str, Any]) -> None:
    """Passages have the same annotations in the same order, whatever the options; so has a `Doc`."""
    texts: list[str | DocLike] = [*TEXTS, Doc("the NYTimes and NYC", (4, 11), (16, 19)), Doc("no entity")]

    expected = list(reader.annotate_batch(texts, workers=1, **options))
    found = list(reader.annotate_batch(iter(texts), workers=2, **options))

    assert sum(map(len, expected)) > 3
    assert_same_annotations(found, expected)


def test_what_is_no_passage_is_an_error_after_the_others(reader: EntityLinker) -> None:
    """A number among the passages ends the batch; what was read before it is annotated."""
    found = reader.annotate_batch([*TEXTS[:4], 7], workers=2)  # type: ignore[list-item]

    assert len([next(found) for _ in range(4)]) == 4
    with pytest.raises(TypeError, match="not int"):
        next(found)
    with pytest.raises(TypeError, match="one string"):
        reader.annotate_batch("NYC", workers=2)
    with pytest.raises(UnknownTypeError):
        reader.annotate_batch(TEXTS, types=["nonsense"], workers=2)


def test_long_texts_go_to_workers_by_themselves(reader: EntityLinker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Much text uses all cores, a short text does not; a passage alone is annotated here."""
    sent: list[int] = []
    submit = reader._workers.submit
    monkeypatch.setattr(reader._workers, "submit", lambda number, *more: sent.append(number) or submit(number, *more))
    monkeypatch.setattr(pool, "count_workers", lambda wanted=None: wanted or 2)
    monkeypatch.setattr(pool, "START_MENTIONS", 20)
    monkeypatch.setattr(pool, "RUNNING_MENTIONS", 20)

    def texts() -> Iterator[str]:
        yield from TEXTS

    few = list(reader.annotate_batch(TEXTS[:2]))
    alone = reader.annotate(" ".join(TEXTS * 5))
    assert sent == []
    found = list(reader.annotate_batch(texts()))
    assert sent
    assert_same_annotations(found, list(reader.annotate_batch(TEXTS, workers=1)))
    assert_same_annotations(found[:2], few)
    assert len(alone) > 5
