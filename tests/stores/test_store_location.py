"""Locations of a store: valid ones, and invalid ones, for which no folder is created."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from cli_runner import Run
from qdrant_double import QdrantDouble

from pearl_qdrant import settings
from pearl_qdrant.errors import SettingsError
from pearl_qdrant.settings import is_url
from pearl_qdrant.store import open_store


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


REFUSED = {
    "": r"is empty\. Name a folder, or a Qdrant server as in http://localhost:6333",
    "ftp://x": r"'ftp://x' is not a supported URL.*http://localhost:6333.*write \./ftp://x",
    "http:/x": "'http:/x' is not a supported URL",
    "HTTP://": "must begin with http:// or https:// and name a host",
    "http://": "name a host",
    "localhost:6333": r"looks like a server: write http://localhost:6333 or https://local.*; .* \./localhost:6333",
    "qdrant.example.org:443/path": "looks like a server",
    "[::1]:6333": r"write http://\[::1\]:6333",
    "a\0b": r"'a\\x00b' is not valid text",
    "a\udcff": r"'a\\udcff' is not valid text",
    "~nobody-of-that-name/store": "is not a folder",
}


@pytest.mark.parametrize("location", REFUSED)
def test_an_invalid_location_is_a_clear_error(location: str, here: Path) -> None:
    """An empty location, a URL of another kind and a server without http:// are errors, and no folder is created."""
    with pytest.raises(SettingsError, match=REFUSED[location]):
        open_store(location)

    assert list(here.iterdir()) == []


def test_any_folder_can_be_a_store(here: Path) -> None:
    """Any valid name of a folder works, alone or with a leading dot and slash; one that exists needs neither."""
    for location in ("folder", "./ftp://x", "./localhost:6333", "a:b", "C:/store", "with blank", "ä", "7"):
        assert open_store(location).location == os.path.realpath(location)
    (here / "localhost:6333").mkdir()
    assert open_store("localhost:6333").location == str(here / "localhost:6333")


def test_schemes_are_read_in_any_case() -> None:
    """HTTP:// means http://, as in a browser."""
    with QdrantDouble() as double:
        location = double.url.replace("http", "HTTP")
        store = open_store(location)

        assert is_url(location)
        assert store.collections() == []
        store.close()


@pytest.mark.parametrize(
    "location, words",
    [
        ("", ("collections", "list")),
        ("ftp://x", ("link", "a name", "--collection", "toy")),
        ("localhost:6333", ("ingest", "names.tsv")),
        ("localhost:6333", ("doctor",)),
        ("ftp://x", ("entities", "show", "E1", "--collection", "toy")),
    ],
)
def test_every_command_refuses_it_before_it_starts(run: Run, here: Path, location: str, words: tuple[str, ...]) -> None:
    """The message is the same for every command with --store, and no folder or file is created."""
    (here / "names.tsv").write_text("id\tname\nE1\tOne\n", encoding="utf-8")
    outcome = run(*words, "--store", location)

    assert outcome.status == 1, outcome
    assert outcome.err.startswith("Error: The store's location")
    assert outcome.out == ""
    assert [path.name for path in here.iterdir()] == ["names.tsv"]


def test_a_user_without_a_home_is_asked_for_a_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a container without a named user, the message names the option and the variable."""

    def fail() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", fail)
    with pytest.raises(SettingsError, match=r"home directory.*Name a store, or set PEARL_QDRANT_STORE") as raised:
        settings.default_store({})

    assert raised.value.option == "store"
