"""What README and docs say is so: commands, variables, examples, links, the library call behind every command, and
messages and exceptions.
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import pkgutil
import re
import runpy
import shlex
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import click
import pytest
from cli_runner import commands, leaves

from pearl_qdrant import EntityLinker, errors
from pearl_qdrant.cli import cli
from pearl_qdrant.cli.setting import SetOption

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
LOG = DOCS / "experiments"
PAGES = (
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "examples/README.md")),
    *sorted((ROOT / "contrib").glob("*.md")),
    *sorted(DOCS.rglob("*.md")),
)
README = (ROOT / "README.md").read_text(encoding="utf-8")

LISTED = {
    group: names.replace("\\", "").split("|")
    for group, names in re.findall(
        r"^\| `pearl-qdrant (\w+) ?([^`]*)`", (DOCS / "commands.md").read_text("utf-8"), re.MULTILINE
    )
}
"""Commands in the table of docs/commands.md: of a group its commands, of a single one its arguments."""


HOOK = runpy.run_path(str(DOCS / "command_reference.py"))
"""What MkDocs calls."""

TWINS = tuple(HOOK["CALLS"].items())
"""Commands, some with the option that chooses another call, and the calls behind them."""

SITE = {"repo_url": "https://code.example/pearl-qdrant"}


def test_every_command_is_explained_and_in_the_table() -> None:
    """`--help` of each says in a sentence what it does; the table of the docs has all commands, and no other."""
    for path, command in commands(cli):
        assert command.help, path
        assert "\\b" not in command.help, "the mark against wrapping must be the character, not its escape"
        assert len(command.help.splitlines()[0]) > 20, path
        for one in command.params:
            if isinstance(one, click.Option) and one.name in ("model", "store", "threshold", "limit"):
                assert one.help, f"{path} {one.opts[0]} has no help"
    paths = {path for path, _ in commands(cli)}
    groups = {name for name, command in cli.commands.items() if isinstance(command, click.Group)}
    assert LISTED.keys() == {path for path in paths if " " not in path}
    assert {f"{group} {name}" for group in groups for name in LISTED[group]} == {one for one in paths if " " in one}


def test_the_command_line_has_what_people_use() -> None:
    """It has 150 options at most; rare ones are settings, by --set."""
    every = [*cli.params, *(one for _, command in commands(cli) for one in command.params)]

    assert len([one for one in every if isinstance(one, click.Option)]) <= 150


PLATFORM = {"LOCALAPPDATA", "XDG_DATA_HOME"}
"""Variables that the platform sets, and the user does not."""


def test_every_environment_variable_is_in_the_docs() -> None:
    """The table of docs/configuration.md names all variables that settings and options read."""
    page = (DOCS / "configuration.md").read_text("utf-8")
    named = {
        v
        for _, c in commands(cli)
        for p in c.params
        for v in ([p.envvar] if isinstance(p.envvar, str) else p.envvar or [])
    }
    settings = (ROOT / "pearl_qdrant" / "settings.py").read_text("utf-8")
    assert {"PEARL_QDRANT_MODEL", "PEARL_QDRANT_STORE"} <= named
    for variable in named | set(re.findall(r"get\(\"([A-Z_]+)\"", settings)) - PLATFORM:
        assert f"| `{variable}` |" in page, variable


def documented() -> Iterator[list[str]]:
    """The words of each command in the blocks of README and docs."""
    for path in PAGES:
        blocks = path.read_text(encoding="utf-8").split("```")[1::2]
        for line in "\n".join(blocks).splitlines():
            if line.removeprefix("$ ").startswith("pearl-qdrant "):
                yield shlex.split(line.removeprefix("$ "), comments=True)[1:]


def test_every_command_in_the_docs_is_one() -> None:
    """Commands, options and bounded values in README and docs are known; nothing is run."""
    wrong = {}
    for words in documented():
        try:
            assert_parses(words)
        except (AssertionError, click.ClickException) as error:
            wrong[shlex.join(words)] = str(error)

    assert wrong == {}


def test_the_generated_reference_shows_every_option() -> None:
    """The site's page of commands has each command under its name, with all its options and settings."""
    page = HOOK["on_page_markdown"]((DOCS / "commands.md").read_text("utf-8"), SITE)
    sections = dict(re.findall(r"^#+ pearl-qdrant (.*?) \{.*?\}\n(.*?)(?=^#|\Z)", page, re.MULTILINE | re.DOTALL))

    assert sections.keys() == {path for path, _ in commands(cli)}
    for path, command in commands(cli):
        options = [one for one in command.params if isinstance(one, click.Option) and not one.hidden]
        assert [one.opts for one in options if one.opts[0] not in sections[path]] == [], path
        names = [name for one in options if isinstance(one, SetOption) for name in one.explained(command)]
        assert [name for name in names if f"| <code>{name}</code> | " not in sections[path]] == [], path
    for command, call in TWINS:
        assert f"`{call}`" in sections[command.partition(" --")[0]]


def test_links_and_files_of_the_docs_lead_somewhere() -> None:
    """Every relative link of README, CONTRIBUTING and docs, and every path of the repository, names a file."""
    roots = "pearl_qdrant|ingest|training|tests|benchmarks|runs|examples|contrib"
    named = {name for path in PAGES for name in re.findall(rf"`((?:{roots})/[\w/.-]+\.\w+)`", path.read_text("utf-8"))}
    assert len(named) > 30
    assert [name for name in named if not (ROOT / name).exists()] == []
    links = [
        (path, link)
        for path in PAGES
        for link in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"```.*?```", "", path.read_text("utf-8"), flags=re.DOTALL))
        if not re.match(r"https?://|#|/", link)  # / begins a place of the site that a page is for
    ]

    assert len(links) > 50
    assert [f"{path.name}: {link}" for path, link in links if not (path.parent / link.partition("#")[0]).exists()] == []


def test_the_docs_can_be_read() -> None:
    """README is a page, the site a book of 22,200 words, the log a quarter of that, the architecture ten minutes."""
    words = {path: len(path.read_text("utf-8").split()) for path in (*PAGES, ROOT / "CHANGELOG.md")}
    log = sum(n for path, n in words.items() if path.parent == LOG)

    assert words[ROOT / "README.md"] <= 700
    assert words[ROOT / "CHANGELOG.md"] <= 1000
    assert words[ROOT / "CONTRIBUTING.md"] <= 1500
    assert words[DOCS / "architecture.md"] <= 1200
    assert log <= 5_500
    assert sum(n for path, n in words.items() if DOCS in path.parents) - log <= 22_200


def written_tables(page: str) -> list[tuple[str, str]]:
    """The tables of a page that scripts write: the path of the script, with what follows a colon, and the table."""
    text = (DOCS / page).read_text("utf-8")
    return [(name, table) for name, table in re.findall(r"<!--([\w/.:]+)-->\n(.*?)<!--/\1-->\n", text, re.DOTALL)]


OF_FIGURES = ("accuracy.md", "crosswalk.md", "documents.md", "integrations/retrieval.md", "speed.md")


@pytest.mark.parametrize("page", OF_FIGURES)
def test_a_table_of_figures_is_written_by_a_script(page: str) -> None:
    """Each has the heading that the script named above it writes; `--page PAGE` of that script replaces its rows."""
    tables = written_tables(page)
    text = (DOCS / page).read_text("utf-8")

    for name, table in tables:
        script, heading = (ROOT / name.partition(":")[0]).read_text("utf-8"), table.splitlines()[0].strip("| ")
        assert "write_rows(" in script, name
        assert f'"{heading}"' in script or all(f'"{cell}"' in script for cell in heading.split(" | ")), heading
        text = text.replace(table, "")
    assert tables
    assert [line for line in text.splitlines() if re.match(r"\|.*\| [\d.]+ ", line)] == [], "rows copied by hand"


def test_figures_of_the_readme_are_those_of_the_docs() -> None:
    """The README's table has the right and, in sum, the wrong answers of the one that `curated_sets.py` writes."""
    written = dict(written_tables("accuracy.md"))["benchmarks/linking/curated_sets.py"]

    def rows(text: str) -> dict[str, list[list[float]]]:
        """Cells with slashes, by the first cell up to a colon."""
        lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|")]
        return {
            first.partition(":")[0]: [[float(one) for one in cell.split("/")] for cell in cells if " / " in cell]
            for first, *cells in lines
            if cells[0].partition(" / ")[0].replace(".", "").isdigit()
        }

    shown, measured = rows(README), rows(written)
    assert len(shown) == 4
    for name, figures in shown.items():
        linker, dictionary, by_ratio = measured[name]
        for (right, wrong), parts in zip(figures, (linker, dictionary, by_ratio), strict=True):
            assert right == parts[0]
            assert abs(wrong - sum(parts[1:])) < 0.15  # rounded once here, twice there


def test_shares_of_other_scripts_in_the_readme_are_those_of_the_docs() -> None:
    """The range of right and wrong links that the README gives is that of the table."""
    table = dict(written_tables("accuracy.md"))["runs/multilingual_model.py"]
    cells = re.findall(
        r"^\| (?:territory|language|city), other scripts \| .* \| ([\d.]+) / ([\d.]+) \|$", table, re.MULTILINE
    )
    right, wrong = ([round(float(one)) for one in column] for column in zip(*cells, strict=True))

    for share, what in ((right, "right"), (wrong, "wrong")):
        least, most = min(share), max(share)
        shown = f" {least} % {what} " if least == most else f" {least} to {most} % {what} "
        assert shown in " ".join(README.split())


def test_every_page_is_in_the_navigation() -> None:
    """A page of the docs is reached from the site's menu, but for the log, and the menu names no other."""
    menu = set(re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text("utf-8").partition("\nnav:")[2]))

    assert menu == {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md") if path.parent != LOG}


def test_the_log_stays_in_the_repository() -> None:
    """On the site a link to the log leads to the repository, from any page; its index leads to each of its pages."""
    page = HOOK["on_page_markdown"]("[log](../experiments/decision.md#labels)", SITE)
    index = (LOG / "index.md").read_text("utf-8")

    assert page == f"[log]({SITE['repo_url']}/blob/main/docs/experiments/decision.md#labels)"
    assert [path.name for path in LOG.glob("*.md") if f"({path.name})" not in index] == ["index.md"]


def drawn_tree() -> Iterator[str]:
    """Folders of the tree in docs/architecture.md, as paths."""
    (block,) = re.findall(r"```tree\n(.*?)```", (DOCS / "architecture.md").read_text("utf-8"), re.DOTALL)
    above: list[str] = []
    for line in block.splitlines():
        indent, name = re.match(r"( *)(\w+)/ +\w", line).groups()  # type: ignore[union-attr]
        above = [*above[: len(indent) // 2], name]
        yield "/".join(above)


def test_the_drawn_tree_is_the_one_that_stands() -> None:
    """docs/architecture.md names the packages and every folder in them, says what it is for, and names no other."""
    folders = {
        path.parent.relative_to(ROOT).as_posix()
        for package in ("pearl_qdrant", "ingest", "training")
        for path in (ROOT / package).rglob("__init__.py")
    }

    assert sorted(drawn_tree()) == sorted(folder for folder in folders if folder.count("/") < 2)


def assert_parses(words: list[str]) -> None:
    """The words after `pearl-qdrant` are a command with its options."""
    command: click.Command = cli
    context = click.Context(cli)
    while isinstance(command, click.Group):
        found = command.get_command(context, words[0])
        assert found is not None, f"there is no command {words[0]}"
        command, words = found, words[1:]
    context = click.Context(command)
    given, _, _ = command.make_parser(context).parse_args(list(words))
    for parameter in command.params:
        if isinstance(parameter, click.Option) and not isinstance(parameter.type, (click.Path, click.File)):
            value = parameter.type_cast_value(context, given.get(parameter.name))
            if isinstance(parameter, SetOption):
                parameter.values_of(context, parameter, value)


PAGE = (DOCS / "python-api.md").read_text("utf-8")


def examples(text: str) -> list[str]:
    """The Python blocks of a page."""
    return re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


EXAMPLES = [
    pytest.param(block, id=f"{path.stem}-{number}")
    for path in PAGES
    if path.parent.name != "integrations"
    for number, block in enumerate(examples(path.read_text("utf-8")), 1)
]
"""Those of all pages but those on frameworks, whose examples `test_independence.py` runs."""


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
    """Whatever I can do at the command line, the reference names the call that does it in Python."""
    assert {command.partition(" --")[0] for command, _ in TWINS} == set(leaves(cli))


@pytest.mark.parametrize("command, call", TWINS, ids=[command for command, _ in TWINS])
def test_the_library_call_exists(command: str, call: str) -> None:
    """The call that the reference names can be imported and called, and an example of the page shows it."""
    assert callable(resolve(call))
    assert any(re.search(rf"\b{call.rpartition('.')[2]}\(", example) for example in examples(PAGE))


def calls(example: str) -> Iterator[tuple[Callable[..., object], ast.Call]]:
    """Calls in an example to what it imports, and to a linker."""
    tree = ast.parse(example)
    known: dict[str, Callable[..., object]] = {}
    modules: dict[str, object] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {alias.asname or alias.name: importlib.import_module(alias.name) for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                with suppress(ModuleNotFoundError):  # it is no module
                    importlib.import_module(f"{node.module}.{alias.name}")
                value = resolve(f"{node.module}.{alias.name}")
                if callable(value):
                    known[alias.name] = value
                else:
                    modules[alias.name] = value
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Name) and node.func.id in known:
            yield known[node.func.id], node
        elif isinstance(node.func, ast.Attribute) and ast.unparse(node.func.value) in ("linker", "EntityLinker"):
            yield getattr(EntityLinker, node.func.attr), node
        elif isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name):
            module = modules.get(node.func.value.id)
            if getattr(module, "__name__", "").startswith("pearl_qdrant"):
                yield getattr(module, node.func.attr), node


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


TROUBLES = (DOCS / "troubleshooting.md").read_text("utf-8")

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
