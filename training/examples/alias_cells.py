"""Alias cells of tables: several names in one cell, joined by bars."""

from __future__ import annotations


def split_aliases(cell: str) -> list[str]:
    r"""Split names joined by `|`; `\|` and `\\` are unescaped, empty names dropped, repetitions kept."""
    names, current, characters = [], "", iter(cell)
    for character in characters:
        if character == "\\":
            current += next(characters, "")
        elif character == "|":
            names.append(current)
            current = ""
        else:
            current += character
    return [name for name in [*names, current] if name]
