"""Invalid and unusual arguments of the linker: refused at the call, independent of the rest."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
from linker_base import ENTITIES, fill

from pearl_qdrant import Entity, EntityLinker
from pearl_qdrant.errors import UnknownTypeError


@pytest.fixture(scope="module")
def linker(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Iterator[EntityLinker]:
    """A linker over a small base with a tie."""
    path = tmp_path_factory.mktemp("store")
    fill(path, "base", str(model), [*ENTITIES, Entity("mercury", "Mercury"), Entity("singer", "Mercury")])
    with EntityLinker.open("base", store=str(path), threshold=0.0) as opened:
        yield opened


async def first(linker: EntityLinker, mentions: list[str]) -> object:
    """The first link of an asynchronous batch."""
    return await anext(linker.alink_batch(mentions))  # type: ignore[call-overload]


@pytest.mark.parametrize("one", ["heart attack", b"heart attack"])
def test_one_string_is_not_the_list_of_its_letters(linker: EntityLinker, one: str | bytes) -> None:
    """A single string in place of many mentions or passages is refused, also by `alink_batch`."""
    mentions = cast("list[str]", one)

    with pytest.raises(TypeError, match="letters would be linked one by one"):
        linker.link_batch(mentions)
    with pytest.raises(TypeError, match="letters would be linked one by one"):
        asyncio.run(first(linker, mentions))
    with pytest.raises(TypeError, match="letters would be annotated one by one"):
        linker.annotate_batch(mentions)


@pytest.mark.parametrize("text", ["", "x", "We saw New York."])
def test_an_unknown_type_is_refused_for_every_text(linker: EntityLinker, text: str) -> None:
    """A typo in a type is reported even if the text has no mention."""
    with pytest.raises(UnknownTypeError, match="Similar: newspaper"):
        linker.annotate(text, types=["newspapr"])
    with pytest.raises(UnknownTypeError, match="Similar: newspaper"):
        linker.annotate_batch([text], types=["newspapr"])


def test_a_context_with_invalid_bytes_is_accepted(linker: EntityLinker) -> None:
    """Bytes from a shell that are not UTF-8 cause no error."""
    found = linker.annotate("We saw Mercury.", context="planets \udcff", include_nil=True)

    assert [annotation.text for annotation in found] == ["Mercury"]
