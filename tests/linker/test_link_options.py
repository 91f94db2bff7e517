"""Options of linking and annotating: as an object, as keyword arguments, and both."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import fields
from typing import cast

import pytest

from ingest.load.request import LoadKeywords, LoadRequest
from pearl_qdrant import EntityLinker, Link, LinkOptions
from pearl_qdrant.linking.options import AnnotateKeywords, AnnotateOptions, LinkKeywords, OnTie, TypeMode


@pytest.mark.parametrize(
    "options, keywords", [(LinkOptions, LinkKeywords), (AnnotateOptions, AnnotateKeywords), (LoadRequest, LoadKeywords)]
)
def test_every_option_is_a_keyword_argument(options: type, keywords: type) -> None:
    """The methods, and `load_base`, accept every field of the object by name, with the same types."""
    assert {field.name: field.type for field in fields(options)} == {
        name: hint.__forward_arg__ for name, hint in keywords.__annotations__.items()
    }


def test_an_object_links_as_keyword_arguments_do(linker: EntityLinker) -> None:
    """I may keep my options in one object, and replace one of them for a call; asyncio gives the same links, from any
    kind of iterable. So it is with passages.
    """
    options = LinkOptions(types=["state"], type_mode="soft", limit=2)
    by_keywords = linker.link("New York", types=["state"], type_mode="soft", limit=2)

    assert linker.link("New York", options) == by_keywords
    assert list(linker.link_batch(["New York"], options)) == [by_keywords]
    assert asyncio.run(linker.alink("New York", options)) == by_keywords
    assert len(linker.link("New York", options, limit=1).candidates) == 1

    async def stream() -> AsyncIterator[str]:
        for mention in ("New York", "NYC", "zzz"):
            yield mention

    async def batches() -> list[list[Link]]:
        of_list = [link async for link in linker.alink_batch(["New York", "NYC", "zzz"], options)]
        return [of_list, [link async for link in linker.alink_batch(stream(), options)]]

    assert asyncio.run(batches()) == [[by_keywords, linker.link("NYC", options), linker.link("zzz", options)]] * 2
    of_text = AnnotateOptions(on_tie="first", include_nil=True)
    annotated = linker.annotate("We saw New York.", on_tie="first", include_nil=True)
    assert annotated
    assert linker.annotate("We saw New York.", of_text) == annotated
    assert list(linker.annotate_batch(["We saw New York."], of_text)) == [annotated]


def test_options_are_checked_when_they_are_made(linker: EntityLinker) -> None:
    """A wrong option is an error where I write it, which names the value; so is a misspelt keyword."""
    with pytest.raises(ValueError, match="limit must be at least 1, not 0"):
        LinkOptions(limit=0)
    with pytest.raises(ValueError, match="type_mode is 'hard', 'soft' or 'off', not 'firm'"):
        LinkOptions(type_mode=cast("TypeMode", "firm"))
    with pytest.raises(ValueError, match=r"threshold is a probability in \[0, 1\], not 1.5"):
        AnnotateOptions(threshold=1.5)
    with pytest.raises(ValueError, match="on_tie is 'canonical', 'null' or 'first', not 'last'"):
        LinkOptions(on_tie=cast("OnTie", "last"))
    assert LinkOptions(types="GPE") == LinkOptions(types=["GPE"])
    with pytest.raises(TypeError, match="treshold"):
        linker.link("x", treshold=0.5)  # type: ignore[call-arg]
