"""What a refresh has done so far, in its work folder, so that the same call goes on there."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pearl_qdrant.errors import OptionError
from pearl_qdrant.store.atomic import write_atomically

FILE = "refresh.json"


@dataclass(slots=True)
class RefreshState:
    """The stages that are done, and what they found.

    Attributes:
        folder: The work folder.
        identity: What the run depends on.
        done: What each finished stage found, by its name.
        seconds: What the finished stages took, together.
    """

    folder: Path
    identity: dict[str, Any]
    done: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0

    @classmethod
    def open(cls, folder: Path, identity: dict[str, Any], *, restart: bool) -> RefreshState:
        """Read the state of a folder, or begin there.

        Raises:
            OptionError: If the folder has a run of something else, or files that are not of a refresh.
        """
        path = folder / FILE
        if path.exists() and not restart:
            stored = json.loads(path.read_text("utf-8"))
            if stored["identity"] != identity:
                other = sorted(key for key in identity if stored["identity"].get(key) != identity[key])
                raise OptionError(
                    "restart",
                    f"{folder} has a refresh with other values of: {', '.join(other)}. Give 'restart' to begin again, "
                    f"or another 'work' folder.",
                )
            return cls(folder, identity, stored["done"], stored["seconds"])
        if path.exists():
            shutil.rmtree(folder)
        elif folder.exists() and any(folder.iterdir()):
            raise OptionError("work", f"{folder} has files, and no refresh wrote them. Give an empty folder.")
        folder.mkdir(parents=True, exist_ok=True)
        state = cls(folder, identity)
        state._write()
        return state

    def finish(self, stage: str, found: Any, *, seconds: float) -> None:
        """Note that a stage is done, and what the run took so far."""
        self.done[stage] = found
        self.seconds = seconds
        self._write()

    def _write(self) -> None:
        record = {"identity": self.identity, "done": self.done, "seconds": round(self.seconds, 3)}
        write_atomically(self.folder / FILE, json.dumps(record, indent=2))
