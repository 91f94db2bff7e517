"""Where the service keeps the indexes of names when the user has no folder for caches."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

import pytest

from pearl_qdrant.service.names import usable_cache

NO_HOME = {"XDG_CACHE_HOME": "/dev/null/nowhere"}


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder for temporary files."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_without_a_home_the_user_has_a_folder_of_their_own(temporary: Path) -> None:
    """It is named by the user, nobody else may read it, and it stays the same."""
    folder = usable_cache(NO_HOME)

    assert folder == temporary / f"pearl-qdrant-{os.geteuid()}"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert usable_cache(NO_HOME) == folder


@pytest.mark.parametrize("planted", ["link", "file", "open", "foreign"])
def test_what_somebody_has_planted_is_not_written_through(temporary: Path, planted: str) -> None:
    """A link, a file, a folder that others may write and one of another user are passed over for a new folder."""
    place, elsewhere = temporary / f"pearl-qdrant-{os.geteuid()}", temporary / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    if planted == "link":
        place.symlink_to(elsewhere)
    elif planted == "file":
        place.write_text("")
    else:
        place.mkdir(mode=0o700)
        place.chmod(0o777 if planted == "open" else 0o700)
    if planted == "foreign":
        if os.geteuid() != 0:
            pytest.skip("only root can give a folder away")
        os.chown(place, 12345, -1)

    folder = usable_cache(NO_HOME)

    assert folder not in (place, elsewhere)
    assert folder.parent == temporary
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert not list(elsewhere.iterdir())
