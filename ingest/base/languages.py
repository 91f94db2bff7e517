"""Codes of languages: ISO 639-2 and 639-3 as those of ISO 639-1, so that ``eng`` and ``en-GB`` match ``en``."""

from __future__ import annotations

from functools import lru_cache
from importlib import resources

_TEXT = resources.files("ingest.base").joinpath("languages.tsv").read_text(encoding="utf-8")
_ROWS = [line.split("\t") for line in _TEXT.splitlines() if not line.startswith("#")]
_SHORT = {code: short for short, codes, _ in _ROWS for code in codes.split()}
OF_UMLS = {short: code for short, _, code in _ROWS if code}
"""The codes of UMLS (LAT) by ISO 639-1."""


@lru_cache(maxsize=4_096)
def language_code(tag: str) -> str:
    """A tag of a language in lower case, its first part as ISO 639-1 where that has it: ``en-gb`` for ``ENG_GB``."""
    first, sign, rest = tag.strip().lower().replace("_", "-").partition("-")
    return f"{_SHORT.get(first, first)}{sign}{rest}"
