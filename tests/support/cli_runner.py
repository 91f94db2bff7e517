"""Running the command line in this process, as a user would in another."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass


@dataclass
class Outcome:
    """What a command left behind."""

    status: int
    out: str
    err: str

    def lines(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.out.splitlines()]


Run = Callable[..., Outcome]
