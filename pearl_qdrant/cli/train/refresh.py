"""`pearl-qdrant train refresh`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from pearl_qdrant.cli.common.options import json_option
from pearl_qdrant.cli.common.terminal import echo, echo_json
from pearl_qdrant.cli.train.options import FOLDER, PATH, options_of
from pearl_qdrant.cli.train.output import training_stage
from training.options import STAGES, RefreshEvents, RefreshRequest, RefreshResult


class _Output(RefreshEvents):
    """Says each stage on a line, with its number and the time that is left; a bar shows its progress."""

    def __init__(self) -> None:
        self._name = ""
        self._bar: Any = None

    def stage(self, name: str, detail: str = "") -> None:
        """End the bar of the stage before."""
        self.close()
        self._name = name
        number = f"{STAGES.index(name) + 1} of {len(STAGES)}"
        echo(f"{number}: {name}{f' ({detail})' if detail else ''}", err=True)

    def progress(self, done: int, total: int | None) -> None:
        """Move the bar."""
        from tqdm import tqdm

        if self._bar is None:
            self._bar = tqdm(total=total, desc=self._name, unit=" names", unit_scale=True, disable=None)
        self._bar.update(done - self._bar.n)

    def close(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.close()
        self._bar = None


@click.command()
@click.argument("base", nargs=-1, required=True, type=PATH)
@click.option("--out", type=FOLDER, required=True, help="Folder of the exported model.")
@options_of(RefreshRequest, flags={"batch_size": "--batch"}, without=("base", "out"))
@json_option
def refresh(base: tuple[Path, ...], as_json: bool, **options: Any) -> None:
    """Fine-tune an encoder on the names of BASE, and say whether it helped.

    A tenth of the entities, at most 2,000, is kept out of training. Their aliases are linked with the new model and
    with its start. The same command resumes a run that was interrupted.

    \b
    pearl-qdrant train refresh umls.tsv --out model/
    pearl-qdrant train refresh umls.tsv --out model/ --minutes 120 --device cuda
    """
    with training_stage():
        from pearl_qdrant import refresh_model

        output = _Output()
        try:
            result = refresh_model(RefreshRequest(base=base, **options), events=output)
        finally:
            output.close()
    if as_json:
        echo_json({**asdict(result), "model": str(result.model)})
        return
    _print(result, options["model"], base)


def _print(result: RefreshResult, start: str, base: tuple[Path, ...]) -> None:
    for one in result.figures:
        echo(f"{one.task}: {one.before:.1f} with {start}, {one.after:.1f} now ({one.low:+.1f} to {one.high:+.1f})")
    said = {
        "better": f"It helped. Encode the base with it: pearl-qdrant ingest {' '.join(map(str, base))} "
        f"--model {result.model} --collection NAME",
        "no difference": "No difference that can be told from chance: try more --minutes, or a base with more aliases",
        "worse": f"It is worse than {start}: do not use it. A lower --ratio keeps more of the start",
        "not measured": "Too few entities with aliases were kept out to say whether it helped",
    }
    echo(f"{result.model}: {result.steps:,} steps on {result.entities:,} entities, {result.held_out:,} kept out")
    echo(said[result.verdict])
