"""Through how many of our files one `load_base` and one `link` run.

python benchmarks/files_of_a_call.py
"""

from __future__ import annotations

import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import click

from ingest.load_base import SAMPLE_BASE
from pearl_qdrant import EntityLinker, load_base

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("pearl_qdrant", "ingest", "training")


def files_of(call: Callable[[], object]) -> list[str]:
    """Our files in which a function was called meanwhile, in this process."""
    seen: set[str] = set()

    def note(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code.co_name != "<module>":
            seen.add(frame.f_code.co_filename)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    ours = (Path(name).relative_to(ROOT) for name in seen if Path(name).is_relative_to(ROOT))
    return sorted(str(path) for path in ours if path.parts[0] in PACKAGES)


@click.command()
@click.option("--list", "is_listed", is_flag=True, help="Name the files.")
def main(is_listed: bool) -> None:
    """Print the numbers."""
    with tempfile.TemporaryDirectory() as folder:
        loaded = files_of(lambda: load_base(SAMPLE_BASE, "base", store=folder))
        with EntityLinker.open("base", store=folder) as linker:
            linker.link("NYTimes")
            linked = files_of(lambda: linker.link("Big Aple"))
    for name, files in (("load_base", loaded), ("link", linked)):
        click.echo(f"{name}: {len(files)} files")
        click.echo("".join(f"  {one}\n" for one in files) if is_listed else "", nl=False)


if __name__ == "__main__":
    main()
