"""Too few files or too little memory are said as such: never as damage, never with advice to delete or to move."""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from edge_cases import ROOT

from pearl_qdrant.errors import StoreError
from pearl_qdrant.linking.learned import ledger
from pearl_qdrant.store import Store
from pearl_qdrant.store.edge import shard as edge_shard

FORBIDDEN = ("damaged", "delete", "as the store", "writable", "Restore")

FEW_FILES = """
import json, os, resource, sys
sys.path.insert(0, "tests/support")
from contextlib import suppress
from pathlib import Path
from store_cases import many
from pearl_qdrant.errors import StoreError
from pearl_qdrant.store import Store, open_store
used = max(map(int, os.listdir("/proc/self/fd")))
said = {}
for more in range(0, 45, 2):
    for read_only in (True, False):
        store = open_store(Path(sys.argv[1]))
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + more, hard))
        try:
            store.collections()
            collection = store.open("toy", read_only=read_only)
            collection.count()
            said[f"{more} {read_only}"] = "opened"
        except StoreError as error:
            said[f"{more} {read_only}"] = str(error)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        with suppress(StoreError):
            store.close()
print(json.dumps(said))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits of open files")
@pytest.mark.slow
def test_with_too_few_files_every_error_says_so(filled: Store) -> None:
    """Wherever the limit of open files strikes, the error names it, and what is stored opens with a higher one."""
    command = [sys.executable, "-c", FEW_FILES, filled.location]
    ended = subprocess.run(command, capture_output=True, check=False, cwd=ROOT, text=True)
    assert ended.returncode == 0, ended.stderr
    said = json.loads(ended.stdout)
    failed = {key: text for key, text in said.items() if text != "opened"}

    assert len(failed) > 2
    assert "opened" in said.values()
    for text in failed.values():
        assert "open files" in text
        assert "ulimit -n" in text
        without_path = re.sub("'/[^']*'", "", text)  # the engine has files named deleted
        assert not any(word in without_path for word in FORBIDDEN), text
    assert filled.open("toy").count() == 60


@pytest.mark.parametrize(
    "code, word", [(errno.EMFILE, "open files"), (errno.ENFILE, "open files"), (errno.ENOMEM, "memory")]
)
@pytest.mark.parametrize("file", ["toy/manifest.json", "toy/.lock"])
def test_a_file_that_cannot_be_opened_for_lack_of_something(
    filled: Store, monkeypatch: pytest.MonkeyPatch, code: int, word: str, file: str
) -> None:
    """Whichever small file meets the limit, what is stored is neither called damaged nor taken for absent."""
    real_open, real_os_open = Path.open, os.open

    def refuse(path: Any) -> None:
        if str(path).endswith(f"/{file}"):
            raise OSError(code, os.strerror(code), str(path))

    def open_(self: Path, *given: Any, **named: Any) -> Any:
        refuse(self)
        return real_open(self, *given, **named)

    def os_open(path: Any, *given: Any, **named: Any) -> int:
        refuse(path)
        return real_os_open(path, *given, **named)

    monkeypatch.setattr(Path, "open", open_)
    monkeypatch.setattr(os, "open", os_open)
    for read_only in (False, True):
        if file == "toy/.lock" and read_only:
            continue
        with pytest.raises(StoreError, match=word) as told:
            filled.open("toy", read_only=read_only)
        assert not any(text in str(told.value) for text in FORBIDDEN), str(told.value)
    for glance in filled.glance(["toy"]):
        assert glance.manifest is not None or word in (glance.problem or "")


@pytest.mark.parametrize(
    "message, word",
    [
        ("Service runtime error: Too many open files (os error 24)", "open files"),
        ("failed to open WAL: Cannot allocate memory (os error 12)", "memory"),
        ("memory allocation of 4294967296 bytes failed", "memory"),
        ('failed to spawn thread: Os { code: 11, kind: WouldBlock, message: "Resource temporarily..." }', "thread"),
    ],
)
def test_what_the_engine_says_of_resources(message: str, word: str) -> None:
    """The engine's own texts about files and memory are told from those about damage."""
    said = str(edge_shard.translate_error(message, "toy", "opening it"))

    assert word in said
    assert not any(text in said for text in FORBIDDEN)


def test_a_huge_ledger_that_memory_cannot_hold_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """If memory runs out while learned names are read, the error says so, and not a traceback."""

    def fail(*given: object) -> None:
        raise MemoryError

    monkeypatch.setattr(ledger, "parse_ledger", fail)
    collection = SimpleNamespace(name="toy", manifest=SimpleNamespace(kb="kb"), read_ledger=list)
    with pytest.raises(StoreError, match="What collection 'toy' learned cannot be read: memory ran out"):
        ledger.read_ledger(collection)  # type: ignore[arg-type]
