"""Running the command line in this process, as a user would in another."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import click


@dataclass
class Outcome:
    """What a command left behind."""

    status: int
    out: str
    err: str

    def lines(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.out.splitlines()]


Run = Callable[..., Outcome]


def commands(group: click.Group, path: str = "") -> Iterator[tuple[str, click.Command]]:
    """Every command with its path, as `collections list`; a group after its own."""
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, f"{path}{name} ")
        yield f"{path}{name}", command


def leaves(group: click.Group) -> list[str]:
    """The paths of all commands that are no groups."""
    return [path for path, command in commands(group) if not isinstance(command, click.Group)]
