"""Golden files of the stages that draw nothing: n-grams, hard negatives, and the 8-bit graph of a seeded network."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from character_models import make_trained
from tiny_models import NAMES

from pearl_qdrant import NgramOptions, export_checkpoint, find_ngrams
from pearl_qdrant.encoder.loading import load_encoder
from training.examples.example import Phrase
from training.hard_negatives import mine_hard_negatives

WORDS = "river north lake stone bridge market garden castle forest harbour".split()
NGRAMS: dict[str, tuple[dict[str, Any], str]] = {
    "corpus": ({}, "34831540d2dfbcb8"),
    "document": ({"scope": "document", "factor": "none", "min_count": 1}, "51683c9b74aa6e4d"),
    "blocks": ({"block_words": 40, "punctuation": "break", "max_per_document": 5}, "588725653d5a72e4"),
}
"""Options beside those of all, and the start of the digest of the files."""

NEGATIVES = "344659c41049a788"


@pytest.mark.parametrize("case", list(NGRAMS))
def test_n_grams_of_a_text_are_the_same_files(tmp_path: Path, case: str) -> None:
    """The same text and options give the same files, byte for byte, but for the paths of the options."""
    rng = random.Random(5)
    lines = [". ".join(", ".join(rng.choices(WORDS, k=9)) + " end" for _ in range(4)) for _ in range(30)]
    (tmp_path / "text.txt").write_text("\n".join(lines), encoding="utf-8")
    (tmp_path / "names.txt").write_text("river north\nStone Bridge\nlake\n", encoding="utf-8")
    changes, expected = NGRAMS[case]
    common: dict[str, Any] = {"min_count": 3, "threshold": -1.0, "entities": tmp_path / "names.txt"}
    find_ngrams(tmp_path / "text.txt", tmp_path / "out", NgramOptions(**{**common, **changes}))

    files = sorted(path for path in (tmp_path / "out").iterdir() if path.name != "meta.json")
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()
    assert digest[:16] == expected


def test_hard_negatives_of_made_names_are_the_same() -> None:
    """Pairs, distances and cosines choose the same negatives in the same order."""
    rng = random.Random(6)
    names = sorted({" ".join(rng.choices(WORDS, k=rng.randint(1, 3))) for _ in range(300)})
    names += [name[:-1] + rng.choice("abc") for name in names]
    phrases = [Phrase(name, (f"e{i % 7}",) if i % 3 else (), (i % 5,)) for i, name in enumerate(names)]

    def encode(some: Sequence[str]) -> npt.NDArray[np.float32]:
        seeds = (int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big") for name in some)
        vectors = np.stack([np.random.default_rng(seed).normal(size=8) for seed in seeds])
        return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)

    found = repr(list(mine_hard_negatives(phrases, encode)))
    assert hashlib.sha256(found.encode()).hexdigest()[:16] == NEGATIVES


def test_the_8_bit_graph_of_a_seeded_network_has_its_vectors(tmp_path: Path) -> None:
    """The first dimensions of a name's vector, by the exported graph."""
    export_checkpoint(make_trained(tmp_path / "trained"), tmp_path / "out", name="golden", names=NAMES)

    vectors = load_encoder(str(tmp_path / "out"), runtime="onnx").encode(NAMES[:2]).vectors
    expected: list[list[float]] = [
        [0.067271, -0.318719, -0.086543, 0.180627, 0.116861],
        [0.091615, -0.373333, -0.066505, 0.128444, 0.085178],
    ]
    np.testing.assert_allclose(vectors[:, :5], expected, atol=1e-3)
