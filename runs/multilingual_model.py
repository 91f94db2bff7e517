r"""Names in many languages that were held out: what the shipped encoder makes of them.

    python runs/multilingual_model.py measure MODEL ... --baseline MODEL
    python runs/multilingual_model.py link MODEL ... --page docs/accuracy.md

`multilingual/names.py` says where the names come from and which packages that needs; docs/experiments/multilingual.md
has the figures.
"""

from __future__ import annotations

import logging
from pathlib import Path

import click
import numpy as np
from multilingual.names import read_entities
from multilingual.tasks import multilingual_tasks
from recipe_tables import page_option, write_rows

from pearl_qdrant import EntityLinker
from pearl_qdrant.encoder.loading import load_encoder
from training.evaluation.methods import EncoderMethod
from training.evaluation.outcome import paired_bootstrap


@click.group()
def main() -> None:
    """Measure or link."""
    logging.basicConfig(level=logging.INFO)


@main.command()
@click.argument("models", nargs=-1, required=True)
@click.option("--baseline", required=True)
def measure(models: tuple[str, ...], baseline: str) -> None:
    """Compare encoders by vectors on held-out names in many languages: start, model, difference, in percent."""
    tasks = multilingual_tasks(read_entities())
    start = EncoderMethod(load_encoder(baseline, device="cpu"))
    first = {task.name: task.measure(start) for task in tasks}
    for model in models:
        method = EncoderMethod(load_encoder(model, device="cpu"))
        for task in tasks:
            found = task.measure(method)
            one = paired_bootstrap(found, first[task.name], rng=np.random.default_rng(0))
            difference = f"{one.mean:+5.1f}  {one.low:+.1f} to {one.high:+.1f}"
            click.echo(f"{model}  {task.name:34}  {first[task.name].value:5.1f}  {found.value:5.1f}  {difference}")


@main.command("link")
@click.argument("models", nargs=-1, required=True)
@page_option
def link_models(models: tuple[str, ...], page: Path | None) -> None:
    """Link the same mentions: the first candidate is right, and at the defaults the answer is right, or wrong.

    The table of --page is of the first model.
    """
    tasks = multilingual_tasks(read_entities())
    for model in models:
        rows = []
        encoder = load_encoder(model, device="cpu")
        for task in tasks:
            names = [{"id": key, "name": name} for name, key in task.searches[0].names]
            asked = [mention for search in task.searches for mention in search.mentions]
            with EntityLinker.build(names, model=encoder) as linker:
                links = list(linker.link_batch([mention for mention, _ in asked]))
            pairs = [(link, gold) for link, (_, gold) in zip(links, asked, strict=True)]
            first = sum(bool(link.candidates) and link.candidates[0].entity_id in gold for link, gold in pairs)
            right = sum(link.entity_id in gold for link, gold in pairs)
            wrong = sum(link.entity_id is not None for link, _ in pairs) - right
            first_share, right_share, wrong_share = (f"{100 * n / len(pairs):.1f}" for n in (first, right, wrong))
            rows.append([task.name.replace(":", ","), first_share, f"{right_share} / {wrong_share}"])
        click.echo(model)
        write_rows(page if model == models[0] else None, __file__, "mentions | first | right / wrong", rows)


if __name__ == "__main__":
    main()
