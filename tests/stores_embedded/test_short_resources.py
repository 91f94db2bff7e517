"""Too few files or too little memory are said as such: never as damage, never with advice to delete or to move."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from types import SimpleNamespace

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
            for glance in store.glance(store.collections()):
                said[f"{more} glance"] = glance.problem or "opened"
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
