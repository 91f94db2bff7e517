"""Public names of the packages `encoder` and `linking`."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGES = [
    "pearl_qdrant.encoder",
    "pearl_qdrant.linking",
    "pearl_qdrant.linking.calibration",
    "pearl_qdrant.linking.ranking",
]


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_exports_its_names_as_type_checkers_see_them(package: str) -> None:
    """What I import from a package is what its module defines, and a misspelt name fails as in any module."""
    module = importlib.import_module(package)
    tree = ast.parse(Path(module.__file__ or "").read_text(encoding="utf-8"))
    typed = {
        alias.name: node.module or ""
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(f"{package}.")
        for alias in node.names
    }

    assert sorted(typed) == module.__all__
    for name, source in typed.items():
        assert getattr(module, name) is getattr(importlib.import_module(source), name)
        assert name in dir(module)
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'load_encodr'"):
        _ = module.load_encodr


def test_packages_cost_nothing_until_a_name_is_used() -> None:
    """Importing them loads no model library and no Qdrant."""
    heavy = "{'numpy', 'torch', 'qdrant_client', 'onnxruntime'}"
    code = f"import sys, {', '.join(PACKAGES)}; assert not {heavy} & set(sys.modules)"

    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, timeout=600)
