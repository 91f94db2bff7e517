"""A member of an archive may have a name that no file could have."""

from __future__ import annotations

import zipfile
from pathlib import Path

from pearl_qdrant import scan_base


def test_members_with_names_longer_than_any_path_are_read(tmp_path: Path) -> None:
    """They are never opened as paths."""
    path = tmp_path / "base.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(3):
            label = "<http://www.w3.org/2000/01/rdf-schema#label>"
            line = f'<http://example.org/{number}> {label} "name {number}"@en .\n'
            archive.writestr(f"{number}{'long-' * 1000}/x.nt", line)

    assert scan_base(str(path)).entities == 3
