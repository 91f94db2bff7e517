"""What a text says of its mentions: affirmed, negated, possible, historical, of another person."""

from __future__ import annotations

import re
from pathlib import Path

SENTENCES = Path(__file__).parent / "assertions.txt"
_MENTION = re.compile(r"\[([^\]|]+)\|(\w+)\]")


def marked(line: str) -> tuple[str, list[tuple[int, int]], list[str]]:
    """A sentence, the places of its mentions and what it says of them."""
    text, places, wanted, at = "", [], [], 0
    for mention in _MENTION.finditer(line):
        text += line[at : mention.start()]
        places.append((len(text), len(text) + len(mention[1])))
        wanted.append(mention[2])
        text += mention[1]
        at = mention.end()
    return text + line[at:], places, wanted
