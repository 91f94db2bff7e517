"""A small file system, for tests of full disks."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(folder: Path, size: str, kind: str = "tmpfs") -> Iterator[Path]:
    """Mount a tmpfs, or an ext4 in a file, of this size in a new folder. This needs root and Linux; otherwise the test
    is skipped.
    """
    folder.mkdir()
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("needs root, to mount a small disk")
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if kind != "tmpfs":
        image = str(folder.with_suffix(".img"))
        mount = ["mount", "-o", "loop", image, str(folder)]
        made = shutil.which(f"mkfs.{kind}") and subprocess.run(["truncate", "-s", size, image], check=False)
        if not made or subprocess.run([f"mkfs.{kind}", "-q", "-m", "0", image], check=False).returncode:
            pytest.skip(f"cannot make an {kind}")
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip(f"may not mount a {kind}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
