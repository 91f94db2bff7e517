"""Licences and notices stay with the package and with every copy of a model."""

from __future__ import annotations

import importlib.util
import re
from types import ModuleType

import pytest
from source_tree import ROOT, project

from pearl_qdrant.encoder.checkpoint import is_checkpoint
from pearl_qdrant.encoder.loading import MODELS_DIR, shipped_names

MODELS = [name for name in shipped_names() if is_checkpoint(MODELS_DIR / name)]
OF_MODEL = ("NOTICE", "LICENSE-WordNet.txt", "LICENSE-E5.txt")
BASES = {"pearl-mini": "multilingual-e5-small, by Microsoft, MIT License (LICENSE-E5.txt). Changed:"}
IN_REPOSITORY = "pearl_qdrant/encoder/models"


@pytest.fixture(scope="module")
def check_wheel() -> ModuleType:
    """The script of continuous integration."""
    spec = importlib.util.spec_from_file_location("check_wheel", ROOT / ".ci" / "check_wheel.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_licences_are_listed_for_the_wheel() -> None:
    """pyproject.toml lists the licence, the notices and WordNet's licence, and all of them exist."""
    patterns = project()["project"]["license-files"]
    found = {path.relative_to(ROOT).as_posix() for pattern in patterns for path in ROOT.glob(pattern)}

    of_models = {f"{IN_REPOSITORY}/{model}/{name}" for model in MODELS for name in OF_MODEL}
    assert found == {"LICENSE", "NOTICE", *of_models}


@pytest.mark.parametrize("model", MODELS)
def test_the_notice_names_every_source_of_the_model(model: str) -> None:
    """The notice has the sources on the model card, and the base encoder with its licence; Princeton's is whole."""
    words = " ".join((MODELS_DIR / model / "LICENSE-WordNet.txt").read_text(encoding="utf-8").split())
    assert words.startswith("This software and database is being provided to you, the LICENSEE, by Princeton")
    assert "WordNet 3.0 Copyright 2006 by Princeton University. All rights reserved." in words
    assert words.endswith("Princeton University and LICENSEE agrees to preserve same.")
    assert len(words.split()) == 231
    notice = " ".join((MODELS_DIR / model / "NOTICE").read_text(encoding="utf-8").split())
    card = (MODELS_DIR / model / "README.md").read_text(encoding="utf-8")
    sources = " ".join(card.partition("## Sources")[2].partition("\n## ")[0].split())
    names = re.findall(r"\b[A-Z][\w-]+(?: \d[\d.]*)?", re.sub(r"\([^)]*\)", "", sources))

    assert {"WordNet 3.0", "Mondo", "YAGO 3", "Few-NERD", "Wikipedia"} <= set(names)
    assert [name for name in names if name not in notice and name not in ("Aliases", "Typed", "Dates", "Phrases")] == []
    assert BASES[model] in notice
