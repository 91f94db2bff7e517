"""The checks of the installation, from Python."""

from __future__ import annotations

from pathlib import Path

from tiny_models import make_pearl

from pearl_qdrant.doctor import check_model, check_package, check_store, run_checks


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
