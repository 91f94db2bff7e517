"""`--set NAME=VALUE`: what it takes, what it refuses, and what replaced the options that were there before."""

from __future__ import annotations

from typing import Annotated

import click
import pytest
from cli_runner import Run, commands
from pydantic import Field

from pearl_qdrant.cli import cli
from pearl_qdrant.cli.setting import SetOption
from pearl_qdrant.options import Options


class Toy(Options):
    """Settings of a toy."""

    size: int = 3
    """How large it is."""
    names: tuple[str, ...] = ()
    """What it is called."""
    place_name: Annotated[str | None, Field(json_schema_extra={"env": "TOY_PLACE"})] = None


def test_texts_become_values_of_their_types() -> None:
    """A name is repeated for several values, and dashes are as good as underscores."""
    assert Toy.read(["size=7", "names=a,b", "names=c"]) == {"size": 7, "names": ("a,b", "c")}
    assert Toy.read(["names=a"]) == {"names": ("a",)}
    assert dict(Toy.describe(but=["names"]))["size"] == "How large it is. [default: 3]"


@pytest.mark.parametrize(
    "words, said",
    [
        ("link x --set on_tye=first", "'on_tye=first' is no setting: write NAME=VALUE, with a name of: on_tie"),
        ("link x --set on_tie", "'on_tie' is no setting"),
        ("link x --set on_tie=last", "'on_tie' is 'last', but must be 'canonical', 'null' or 'first'"),
        ("link x --set nil_bias=nan", "'nil_bias' is 'nan', but must be a finite number"),
        ("link x --set workers=0", "'workers' is '0', but must be greater than or equal to 1"),
        ("annotate x --set workers=2", "--set workers is for --file"),
        ("link x --set threshold=0.5", "'threshold=0.5' is no setting"),  # it has an option of its own
        ("train fit --base-model a --out b --set temperature=0", "'temperature' is '0', but must be greater than 0"),
        ("train fit --base-model a --out b --steps 0", "'steps' is '0', but must be greater than or equal to 1"),
        ("calibrate --precision 1", "'precision' is '1', but must be less than 1"),
        ("annotate x --markup tex", "'markup' is 'tex', but must be 'html' or 'markdown'"),
        ("annotate x --set format=whole", "--set format is for --file"),
        ("serve --set max_mentions=x", "'max_mentions' is 'x', but must be a valid integer"),
    ],
)
def test_a_wrong_setting_says_what_is_right(run: Run, words: str, said: str) -> None:
    """The message has the names that are near, or the bound, and the status is that of a wrong usage."""
    done = run(*words.split())

    assert done.status == 2
    assert said in " ".join(done.err.split())


@pytest.mark.parametrize(
    "words, new",
    [
        ("ingest --formats", "--format help"),
        ("evaluate --list", "--task help"),
        ("crosswalk a b --sssom c", "--out FILE.sssom.tsv"),
        ("models export a b --torch", "the command without it"),
        ("reencode a --model m --everyday --max-fall 1", "the same command without --everyday, which switches to the "),
        ("train refresh a --out b --json", "the call in Python, which returns the figures"),
        ("mcp --transport http", "--port PORT for HTTP, and nothing for stdio"),
        ("ingest x --label-propertys p", "--set label_properties="),
        ("learn --labelled x --again", "--yes"),
        ("calibrate --pairs x", "--labelled"),
        ("calibrate --mentions x", "--ask FILE"),
        ("calibrate --force", "--yes"),
        ("collections verify x --model m", "the variable PEARL_QDRANT_MODEL"),
        ("mcp --writable", "--allow-writing"),
    ],
)
def test_an_option_that_moved_says_where_it_is(run: Run, words: str, new: str) -> None:
    """A script of an earlier version ends with the new words, not in silence."""
    done = run(*words.split())

    assert done.status == 2
    assert f". Write {new}" in done.err


@pytest.mark.parametrize(
    "words, setting, value",
    [
        ("link x --on-tie first", "on_tie", "first"),
        ("link x --split", "split", True),
        ("link x --jobs 2 --file -", "workers", 2),
        ("link x --model m --set on_tie=first", "model", "m"),
        ("annotate x --nil", "include_nil", True),
        ("annotate x --document", "document", True),
        ("annotate x --assertion other-person", "assertions", ("other_person",)),
        ("annotate x --file - --format whole", "format", "whole"),
        ("calibrate --precision 0.9", "precision", 0.9),
        ("ingest x --max-entities 3", "limit", 3),
        ("ingest x --max-errors 0", "max_errors", 0),
        ("resolve --undo a --undo b", "undo", ("a", "b")),
        ("train corpus --out o --base b --base c", "bases", ["b", "c"]),
        ("train refresh b --out o --minutes 5", "minutes", 5.0),
        ("train love . o --restart", "restart", True),
        ("ingest x --wait 3", "wait_s", 3.0),
        ("ingest x --label-properties p --label-properties=q", "label_properties", ("p", "q")),
        ("ingest x --popularity-column=p", "popularity_column", "p"),
        ("ingest x --sheet s", "records", "s"),
        ("resolve --graph g --out o --precision 0.9", "precision", 0.9),
        ("train fit --base-model a --out b --batch 5", "batch_size", 5),
        (f"train judge a {__file__} c --pairs 9", "pairs", 9),
        ("serve --allow-writing", "allow_writing", True),
    ],
)
def test_a_setting_may_be_written_as_an_option(words: str, setting: str, value: object) -> None:
    """`--on-tie first` is `--set on_tie=first`, with the names of earlier versions, too."""
    rest = words.split()
    command: click.Command = cli
    while isinstance(command, click.Group):
        command = command.commands[rest.pop(0)]
    found: dict[str, object] = command.make_context("command", rest).params["settings"]

    assert found[setting] == value


def test_help_explains_the_settings(run: Run) -> None:
    """`--help` names them, `--set help` says what each means, with bounds, default and variable."""
    helped, explained = run("train", "fit", "--help").out, run("train", "fit", "--set", "help").out

    assert "temperature" in helped
    assert "temperature  Temperature of NT-Xent, the contrastive loss (Eq. 2)" in explained
    assert "[over 0; default: 0.07]" in explained
    assert "PEARL_QDRANT_DEVICE" in explained


def test_every_setting_is_explained() -> None:
    """Each setting of each command has a text."""
    unexplained = {
        path: [name for name, text in one.explained(command).items() if len(text) < 10 or not text[0].isprintable()]
        for path, command in commands(cli)
        for one in command.params
        if isinstance(one, SetOption)
    }

    assert len(unexplained) > 10
    assert {path: names for path, names in unexplained.items() if names} == {}


def test_a_word_means_one_thing() -> None:
    """`--yes` is the only way to insist, `--labelled` the only name of labelled mentions, and so on."""
    flags: dict[str, set[str]] = {}
    for path, command in commands(cli):
        for one in command.params:
            if isinstance(one, click.Option):
                for flag in one.opts:
                    flags.setdefault(flag, set()).add(path)

    assert not {"--force", "--again", "--pairs", "--mentions", "--jobs", "--writable"} & flags.keys()
    assert flags["--limit"] == {"link"}
    assert flags["--format"] == {"ingest"}
    assert flags["--workers"] == {"serve"}
    assert flags["--threshold"] == {"link", "annotate", "crosswalk"}
    assert flags["--labelled"] == {"learn", "calibrate"}


def test_a_variable_sets_what_is_left_open() -> None:
    """The setting comes before the variable, and an empty variable is none."""
    environment = {"TOY_PLACE": "shelf"}

    assert Toy.read([], environment=environment) == {"place_name": "shelf"}
    assert Toy.read(["place-name=box"], environment=environment) == {"place_name": "box"}
    assert Toy.read([], environment={"TOY_PLACE": ""}) == {}
