"""Single entities, made and edited from Python as the commands do it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny_models import make_pearl

from pearl_qdrant import EntityLinker, load_base, make_entity
from pearl_qdrant.encoder.loading import describe_model
from pearl_qdrant.errors import InvalidEntityError, ModelNotFoundError


def test_an_entity_gets_clean_aliases_and_coarse_types() -> None:
    """Blank and repeated aliases are skipped, and native types are mapped as a reader does it."""
    entity = make_entity("acme", "Acme", aliases=["ACME", " ", "Acme", "ACME"], kb_types=["company", "no such type"])

    assert entity.aliases == ("ACME",)
    assert entity.kb_types == ("company", "no such type")
    assert entity.types == ("ORG",)


@pytest.mark.parametrize("entity_id, name", [("", "Acme"), ("acme", " ")])
def test_an_entity_without_an_id_or_a_name_is_refused(entity_id: str, name: str) -> None:
    """Both are needed."""
    with pytest.raises(InvalidEntityError, match="needs an id and a name"):
        make_entity(entity_id, name)


def test_missing_entities_are_listed(tmp_path: Path) -> None:
    """Before I delete entities I can ask which of them are in no open collection."""
    model = make_pearl(tmp_path / "model").folder
    (tmp_path / "base.tsv").write_text("E1\tone\nE2\ttwo\n", encoding="utf-8")
    load_base(tmp_path / "base.tsv", "toy", store=str(tmp_path / "store"), model=str(model))

    with EntityLinker.open("toy", store=str(tmp_path / "store")) as linker:
        assert linker.missing(["E3", "E1", "e2"]) == ["E3", "e2"]
        assert linker.missing([]) == []


def test_a_model_is_described_with_its_files(tmp_path: Path) -> None:
    """I get width, hash, files and training of a checkpoint; a missing model is an error."""
    model = make_pearl(tmp_path / "model").folder
    described = describe_model(str(model))

    assert described.info.dim == described.to_json()["dim"]
    assert described.files is not None
    assert described.files.keys() <= {path.relative_to(model).as_posix() for path in model.rglob("*")}
    assert described.to_json()["files"] == described.files
    with pytest.raises(ModelNotFoundError):
        describe_model(str(tmp_path / "nothing"))
