"""docs/python-api.md has the library call behind every command.
docs/troubleshooting.md speaks of messages and exceptions that exist.
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cli_runner import leaves

from pearl_qdrant import EntityLinker, errors
from pearl_qdrant.cli import cli

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "python-api.md").read_text("utf-8")

TWINS = re.findall(r"^\| `([\w -]+)` \| `([\w.]+)` \|", PAGE, re.MULTILINE)
"""Commands, some with the option that chooses another call, and the calls behind them."""


def examples(text: str) -> list[str]:
    """The Python blocks of a page."""
    return re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


EXAMPLES = [
    pytest.param(block, id=f"{path.stem}-{number}")
    for path in (ROOT / "README.md", *sorted((ROOT / "contrib").glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")))
    if path.parent.name != "integrations"
    for number, block in enumerate(examples(path.read_text("utf-8")), 1)
]
"""Those of README and of all pages but those on frameworks, whose examples `test_independence.py` runs."""


def resolve(dotted: str) -> object:
    """What a dotted name stands for: a module's attribute, or an attribute of one."""
    parts = dotted.split(".")
    for n_module in range(len(parts) - 1, 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:n_module]))
        except ModuleNotFoundError as error:
            if error.name and not error.name.startswith(("pearl_qdrant", "ingest", "training", parts[0])):
                pytest.skip(f"{error.name} is not installed")  # an extra without a release for this Python
            continue
        for part in parts[n_module:]:
            found = getattr(found, part)
        return found
    raise ModuleNotFoundError(dotted)


def test_every_command_has_a_library_call() -> None:
    """Whatever I can do at the command line, the page shows me how to do in Python."""
    assert {command.partition(" --")[0] for command, _ in TWINS} == set(leaves(cli))


@pytest.mark.parametrize("command, call", TWINS, ids=[command for command, _ in TWINS])
def test_the_library_call_exists(command: str, call: str) -> None:
    """The call that the page names can be imported and called, and one of the examples shows it."""
    assert callable(resolve(call))
    assert any(re.search(rf"\b{call.rpartition('.')[2]}\(", example) for example in examples(PAGE))


def calls(example: str) -> Iterator[tuple[Callable[..., object], ast.Call]]:
    """Calls in an example to what it imports, and to a linker."""
    tree = ast.parse(example)
    known: dict[str, Callable[..., object]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                value = resolve(f"{node.module}.{alias.name}")
                if callable(value):
                    known[alias.name] = value
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Name) and node.func.id in known:
            yield known[node.func.id], node
        elif isinstance(node.func, ast.Attribute) and ast.unparse(node.func.value) in ("linker", "EntityLinker"):
            yield getattr(EntityLinker, node.func.attr), node


@pytest.mark.parametrize("example", EXAMPLES)
def test_examples_call_what_exists_with_arguments_that_it_takes(example: str) -> None:
    """What an example imports is there, and takes the arguments that the example gives."""
    for function, call in calls(example):
        parameters = inspect.signature(function).parameters
        takes_any = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values())
        given = {keyword.arg for keyword in call.keywords}
        assert takes_any or given <= parameters.keys(), ast.unparse(call)


def test_no_export_is_hidden_by_a_module_of_its_name() -> None:
    """`from PACKAGE import NAME` gives the same thing whatever was imported before."""
    hidden = [
        f"{package.__name__}.{name}"
        for top in ("pearl_qdrant", "ingest", "training")
        for found in pkgutil.walk_packages([str(ROOT / top)], f"{top}.")
        if found.ispkg
        for package in [importlib.import_module(found.name)]
        for name in {one.name for one in pkgutil.iter_modules(package.__path__)} & set(getattr(package, "__all__", ()))
    ]

    assert hidden == []


TROUBLES = (ROOT / "docs" / "troubleshooting.md").read_text("utf-8")

VALUE = "…"
"""Stands for a value, in the page and in the messages of the code."""

QUOTED = [
    message
    for heading in re.findall(r"^### (.*)$", TROUBLES, re.MULTILINE)
    for message in re.findall(r"`(.+?)`", heading)
]
"""Messages that are headings of the page; reasons of NIL stand in code marks too, and are no messages."""


def messages() -> Iterator[str]:
    """Every text of the three packages, with a mark where a value is put in."""
    for package in ("pearl_qdrant", "ingest", "training"):
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.JoinedStr):
                    yield "".join(
                        part.value if isinstance(part, ast.Constant) and isinstance(part.value, str) else VALUE
                        for part in node.values
                    )
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    yield node.value


@functools.cache
def all_messages() -> str:
    """The texts, one a line; read by the first test that asks, not while tests are collected."""
    return "\n".join(message.replace("\n", " ") for message in messages())


@pytest.mark.parametrize("quoted", QUOTED)
def test_a_quoted_message_is_one_of_the_program(quoted: str) -> None:
    """What I search the page for, having seen it on the screen, is what the program writes."""
    pattern = ".*?".join(re.escape(part) for part in quoted.strip(VALUE).split(VALUE))

    assert re.search(pattern, all_messages())


def test_every_exception_is_in_the_tree() -> None:
    """Whatever exception of the package I catch, the tree that the page leads to has its name."""
    names = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, errors.PearlQdrantError)
    }

    assert len(names) > 20
    assert {name for name in names if name not in str(errors.__doc__)} == set()
