"""A small base for tests of calibration."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pearl_qdrant.store import open_store
from pearl_qdrant.store.schema import LinkCalibration


def base_file(folder: Path, n: int = 80) -> Path:
    """A base of `n` entities with one alias each, and two that share a folded name."""
    rng = np.random.default_rng(0)
    words = ["".join(rng.choice(list("abcdefghijklmnop"), 7)) for _ in range(2 * n)]
    rows = [f"e{i}\t{words[2 * i]} {words[2 * i + 1]}\tORG\t{words[2 * i + 1]} {words[2 * i]}s" for i in range(n)]
    rows += ["twin1\tIL-2 gene\tORG\t", "twin2\til2 Gene\tORG\tanother"]
    path = folder / "base.tsv"
    path.write_text("id\tname\ttype\taliases\n" + "\n".join(rows) + "\n", encoding="utf-8")
    return path


def manifest_calibration(folder: Path) -> LinkCalibration | None:
    """The calibration in the manifest of the collection."""
    store = open_store(folder)
    try:
        return store.open("base").manifest.calibration
    finally:
        store.close()
