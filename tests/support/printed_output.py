"""What the docs show, compared with what a command prints."""

from __future__ import annotations

import re

import pytest

NEAR = 0.02
"""Scores differ in their last digits from one processor to another."""

_FRACTION = re.compile(r"\d\.\d+")


def assert_shown(printed: str, shown: str) -> None:
    """The two are equal, but for fractions that are near; a shown line `...` stands for the rest."""
    lines = shown.rstrip("\n").split("\n")
    if lines[-1].strip() == "...":
        lines.pop()
        printed = "\n".join(printed.split("\n")[: len(lines)])
    shown, printed = "\n".join(lines), printed.rstrip("\n")
    assert _FRACTION.sub("#", printed) == _FRACTION.sub("#", shown)
    found = [[float(one) for one in _FRACTION.findall(text)] for text in (printed, shown)]
    assert found[0] == pytest.approx(found[1], abs=NEAR), printed
