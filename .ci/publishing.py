"""What publishing needs and a clone does not: the account, the README for a package index, the tag of a release.

python .ci/publishing.py owner ACCOUNT   write the account that publishes into every file that names it
python .ci/publishing.py readme          make links and `pip install` of the README those of a package index
python .ci/publishing.py tag v0.1.0      fail unless the tag is the version everywhere
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

OWNED = re.compile(
    r"(?<=github\.com/)[\w-]+(?=/pearl-qdrant)|(?<=githubusercontent\.com/)[\w-]+(?=/pearl-qdrant)"
    r"|(?<=io\.github\.)[\w-]+(?=/pearl-qdrant)|[\w-]+(?=\.github\.io/pearl-qdrant)"
    r"|(?<![\w./-])(?!models/)[\w-]+(?=/pearl-(?:mini\b|qdrant:))"
)
"""The account, wherever an address of the project has it: repository, site, MCP registry, model hub, image."""

_SUFFIXES = {".md", ".toml", ".json", ".cff", ".yml", ".yaml", ".txt", ".ipynb"}
_FOLDERS = ("contrib", "docs", "skills", ".github")


def owned_files(root: Path = ROOT) -> Iterator[Path]:
    """Files that may name the account."""
    paths = [*root.iterdir(), *(path for folder in _FOLDERS for path in (root / folder).rglob("*"))]
    yield from sorted(path for path in paths if path.suffix in _SUFFIXES and path.is_file())


def set_owner(account: str, root: Path = ROOT) -> int:
    """Write the account into all files; returns how many changed. Raises ValueError if GitHub has no such names."""
    if not re.fullmatch(r"[A-Za-z\d](?:-?[A-Za-z\d]){0,38}", account):
        raise ValueError(f"'{account}' is no name of an account: letters, digits and single hyphens, 39 at most.")
    n_changed = 0
    for path in owned_files(root):
        text = path.read_text("utf-8")
        new = OWNED.sub(account, text)
        if new != text:
            path.write_text(new, "utf-8")
            n_changed += 1
    return n_changed


def owner(root: Path = ROOT) -> str:
    """The account of pyproject.toml."""
    found = re.search(
        r'^Repository = "https://github\.com/([\w-]+)/', (root / "pyproject.toml").read_text("utf-8"), re.MULTILINE
    )
    assert found
    return found[1]


def for_an_index(text: str, account: str) -> str:
    """A Markdown text with its relative links and pictures as addresses of the repository, and the package by name."""
    text = re.sub(r"(pip install '?)\.(?=[`'\s\[])", r"\1pearl-qdrant", text)
    base = f"https://github.com/{account}/pearl-qdrant"
    text = re.sub(r"(!\[[^\]]*\]\()(?!https?:|#)", rf"\1{base}/raw/main/", text)
    return re.sub(r"((?<!!)\[[^\]]*\]\()(?!https?:|#)", rf"\1{base}/blob/main/", text)


def versions(root: Path = ROOT) -> dict[str, str]:
    """The version that each file states."""
    stated = {
        "pearl_qdrant/_version.py": r'__version__ = "(.+)"',
        "CHANGELOG.md": r"^## (\S+)",
        "CITATION.cff": r"^version: (\S+)",
        "contrib/server.json": r'^  "version": "(.+)"',
    }
    found = {}
    for name, pattern in stated.items():
        match = re.search(pattern, (root / name).read_text("utf-8"), re.MULTILINE)
        found[name] = match[1] if match else ""
    return found


def main() -> None:
    """Do what the arguments say; exit with 1 and the reason if it cannot be done."""
    match sys.argv[1:]:
        case ["owner", account]:
            try:
                print(f"{set_owner(account)} files have the account {account} now.")
            except ValueError as error:
                sys.exit(str(error))
        case ["readme"]:
            if owner() == "OWNER":
                sys.exit("pyproject.toml has no account yet: python .ci/publishing.py owner ACCOUNT")
            path = ROOT / "README.md"
            path.write_text(for_an_index(path.read_text("utf-8"), owner()), "utf-8")
        case ["tag", tag]:
            wrong = [f"{name} has {version}" for name, version in versions().items() if f"v{version}" != tag]
            if wrong:
                sys.exit(f"The tag is {tag}, but {', '.join(wrong)}.")
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
