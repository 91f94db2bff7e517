"""Check that a wheel holds the three packages whole, and the checkpoint that ships: `check_wheel.py WHEEL`."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

PACKAGES = ("pearl_qdrant", "ingest", "training")
MODELS = Path("pearl_qdrant/encoder/models")
_OF_MODEL = ("NOTICE", "LICENSE-WordNet.txt", "LICENSE-E5.txt")
LICENCES = ("LICENSE", "NOTICE", *(f"{MODELS.as_posix()}/pearl-mini/{name}" for name in _OF_MODEL))


def expected_files(root: Path) -> set[str]:
    """Paths that belong into the wheel, relative to `root`: modules, tables, the page, type markers, models."""
    wanted = {
        path.relative_to(root).as_posix()
        for package in PACKAGES
        for path in (root / package).rglob("*")
        if path.suffix in {".py", ".tsv", ".html", ".css", ".js", ".svg"} or path.name == "py.typed"
    }
    return wanted | {path.relative_to(root).as_posix() for path in (root / MODELS).rglob("*") if path.is_file()}


def problems(wheel: Path, root: Path) -> list[str]:
    """What is wrong with the wheel, one sentence each."""
    names = set(zipfile.ZipFile(wheel).namelist())
    found = [f"the wheel lacks {name}" for name in sorted(expected_files(root) - names)]
    models = [name for name in names if name.startswith(f"{MODELS.as_posix()}/")]
    found += [
        f"the wheel holds no model with {name}"
        for name in ("pearl.json", "onnx/model.onnx")
        if not any(path.endswith(f"/{name}") for path in models)
    ]
    # Princeton wants its notice on all copies; the Apache licence wants NOTICE kept.
    kept = {path.partition(".dist-info/licenses/")[2] for path in names}
    found += [f"the wheel lacks {name} among its licences" for name in LICENCES if name not in kept]
    folders = {path.rpartition("/")[0] for path in models if path.endswith("/pearl.json")}
    found += [
        f"the wheel lacks {folder}/{name}"
        for folder in sorted(folders)
        for name in _OF_MODEL
        if f"{folder}/{name}" not in names
    ]
    tops = {name.split("/")[0] for name in names if ".dist-info/" not in name}
    found += [f"the wheel would install a top-level {top}" for top in sorted(tops - set(PACKAGES))]
    return found


def main() -> None:
    """Exit with 1 and the reasons if the wheel is not right."""
    wheel = Path(sys.argv[1])
    found = problems(wheel, Path(__file__).resolve().parent.parent)
    if found:
        sys.exit("\n".join(found))
    print(f"{wheel.name}: complete, {wheel.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
