"""docs/troubleshooting.md speaks of messages and exceptions that exist."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from pearl_qdrant import errors

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text("utf-8")

VALUE = "…"
"""Stands for a value, in the page and in the messages of the code."""

QUOTED = [
    message for heading in re.findall(r"^### (.*)$", PAGE, re.MULTILINE) for message in re.findall(r"`(.+?)`", heading)
]
"""Messages that are headings of the page; reasons of NIL stand in code marks too, and are no messages."""


def messages() -> Iterator[str]:
    """Every text of the three packages, with a mark where a value is put in."""
    for package in ("pearl_qdrant", "ingest", "training"):
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.JoinedStr):
                    yield "".join(
                        part.value if isinstance(part, ast.Constant) and isinstance(part.value, str) else VALUE
                        for part in node.values
                    )
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    yield node.value


@functools.cache
def all_messages() -> str:
    """The texts, one a line; read by the first test that asks, not while tests are collected."""
    return "\n".join(message.replace("\n", " ") for message in messages())


@pytest.mark.parametrize("quoted", QUOTED)
def test_a_quoted_message_is_one_of_the_program(quoted: str) -> None:
    """What I search the page for, having seen it on the screen, is what the program writes."""
    pattern = ".*?".join(re.escape(part) for part in quoted.strip(VALUE).split(VALUE))

    assert re.search(pattern, all_messages())


def test_every_exception_is_in_the_tree() -> None:
    """Whatever exception of the package I catch, the tree that the page leads to has its name."""
    names = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, errors.PearlQdrantError)
    }

    assert len(names) > 20
    assert {name for name in names if name not in str(errors.__doc__)} == set()
