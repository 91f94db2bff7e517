"""Tiny models, for the tests in this folder."""

from __future__ import annotations

from pathlib import Path

import pytest
import tiny_models
from encoder_cases import FAMILIES

from pearl_qdrant.encoder.loading import load_encoder
from pearl_qdrant.encoder.protocol import Encoder


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One folder of each kind; tests do not change them."""
    root = tmp_path_factory.mktemp("encoders")
    made = {family: tiny_models.as_sentence_transformers(make(root / family)) for family, make in FAMILIES.items()}
    return {**made, "pearl": tiny_models.make_pearl(root / "pearl").folder}


@pytest.fixture(scope="session")
def encoders(folders: dict[str, Path]) -> dict[str, Encoder]:
    """The PEARL checkpoint on both runtimes, and a plain encoder."""
    return {
        "onnx": load_encoder(str(folders["pearl"]), runtime="onnx"),
        "torch": load_encoder(str(folders["pearl"]), runtime="torch", precision="fp32", threads=1),
        "plain": load_encoder(str(folders["roberta"]), precision="fp32"),
    }
