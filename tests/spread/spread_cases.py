"""Bases and comparisons of loads in parts."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from store_cases import check_same_load

from pearl_qdrant.store import open_store


def write_base(path: Path, n: int = 90) -> Path:
    """`n` entities; every seventh has a second row at the end, every tenth a name of the one before it."""
    lines = ["id\tname\ttype\taliases"]
    for i in range(n):
        shared = i if i % 10 else max(0, i - 1)
        lines.append(f"E{i}\tw{i} times\tORG\tw{shared} post|new york {i}")
    lines += [f"E{i}\tlate {i}\tGPE\tw{i} times|paper {i}" for i in range(0, n, 7)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def assert_equal(store: Path, one: str, other: str) -> None:
    """Two collections have the same ids, payloads, vectors and manifests."""
    with closing(open_store(store)) as opened:
        check_same_load(opened.open(one), opened.open(other))
