"""The checks of the installation, from Python."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny_models import make_pearl

from pearl_qdrant.cli import message_of
from pearl_qdrant.doctor import check_model, check_package, check_store, run_checks
from pearl_qdrant.errors import PearlQdrantError, StoreLockedError


def test_a_working_installation_has_no_failed_check(tmp_path: Path) -> None:
    """Every check has a subject, a state and a finding."""
    model = make_pearl(tmp_path / "model").folder
    checks = {check.subject: check for check in run_checks(str(tmp_path / "store"), str(model))}

    assert checks.keys() >= {"python", "package", "numpy", "torch", "model", "store"}
    assert {check.state for check in checks.values()} <= {"ok", "note"}
    assert checks["store"].finding == f"{tmp_path / 'store'}: 0 collections"


def test_a_failed_check_says_what_to_do(tmp_path: Path) -> None:
    """A missing package, model or store is a failed check and not an exception."""
    (tmp_path / "file").write_text("", encoding="utf-8")

    assert check_package("no-such-package").finding == "not installed. Fix: pip install no-such-package"
    assert check_model("no/such@model?").state == "fail"
    assert [check.state for check in check_store(str(tmp_path / "file"))] == ["fail"]
    assert [check.state for check in check_store("http://user:key@localhost:1")] == ["fail"]


@pytest.mark.parametrize(
    "error, message",
    [
        (PearlQdrantError("No."), "No."),
        (PearlQdrantError("No.", option="id_column"), "No. Option: --id-column"),
        (PearlQdrantError("Use --store.", option="store"), "Use --store."),
    ],
)
def test_the_command_line_names_the_flag(error: PearlQdrantError, message: str) -> None:
    """An error of the library names an argument; on the terminal I see the flag."""
    assert message_of(error) == message


def test_an_error_of_the_store_names_its_argument() -> None:
    """A locked store can be replaced by another one: the error says by which argument."""
    error = StoreLockedError("toy", "process 1")

    assert error.option == "store"
    assert "--" not in str(error)
