"""Draws the figures of docs/figures.md: precision and recall by threshold, calibration, and time by size of the base.

    python benchmarks/linking/figures.py FOLDER... --base base.tsv --out docs/pictures

Each FOLDER is a set as `curated_sets.py` takes it, linked at the defaults; --base is a TSV of entities (id, name) of
which the first names are loaded. Without one of the two, its figures stay as they are. Needs matplotlib; writes SVG.

    precision-recall.svg   by threshold, of the first candidate; dotted: WRatio of rapidfuzz by its cutoff
    reliability.svg        share of right first candidates in ten bins of their probability
    time-by-size.svg       processor time of a link in a batch: names of the base, one slip in each; dotted: `ratio` of
                           rapidfuzz over all names
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import click
import matplotlib as mpl
import numpy as np
from curated_sets import TITLES, Curated, read
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator
from rapidfuzz import fuzz, process

from pearl_qdrant import EntityLinker, load_base
from pearl_qdrant.settings import DEFAULT_THRESHOLD
from training.augment.draw import edit_character

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "runs"))
from recipe_tables import read_tsv

SIZES = (1_000, 3_000, 10_000, 30_000, 100_000)
"""Names of a base."""

N_TIMED = 500
"""Mentions of each kind that are timed in a base."""


@dataclass(frozen=True, slots=True)
class Ranked:
    """First answers to the mentions of a set, (n,) each: how sure they are, and whether they are right."""

    sure: np.ndarray
    right: np.ndarray
    n_present: int
    """Mentions whose entity is in the base."""

    def curve(self) -> tuple[np.ndarray, np.ndarray]:
        """Recall and precision at each threshold from the highest to the lowest, where twenty are linked at least."""
        order = np.argsort(-self.sure, kind="stable")
        last = np.flatnonzero(np.diff(self.sure[order], append=-1.0))  # equal ones are linked together
        n_right, n_linked = np.cumsum(self.right[order])[last], last + 1
        enough = n_linked >= 20
        return n_right[enough] / self.n_present, n_right[enough] / n_linked[enough]

    def bins(self, least: int = 20) -> tuple[list[float], list[float]]:
        """Mean probability and share right of each tenth of the probabilities that has so many mentions."""
        of = np.minimum((self.sure * 10).astype(int), 9)
        rows = [of == number for number in range(10) if (of == number).sum() >= least]
        return [float(self.sure[one].mean()) for one in rows], [float(self.right[one].mean()) for one in rows]

    def at(self, threshold: float) -> tuple[float, float]:
        """Recall and precision at one threshold."""
        linked = self.sure >= threshold
        return float(self.right[linked].sum() / self.n_present), float(self.right[linked].mean())


def ranked(sure: Sequence[float], answers: Sequence[str | None], data: Curated) -> Ranked:
    """Answers beside the right ones."""
    right = [answer in ids for answer, ids in zip(answers, data.gold, strict=True)]
    return Ranked(np.array(sure), np.array(right), sum(map(bool, data.gold)))


def by_linker(folder: Path, data: Curated) -> Ranked:
    """The first candidates of the linker."""
    with tempfile.TemporaryDirectory() as store:
        load_base(folder / "base.tsv", collection="curated", store=store)
        with EntityLinker.open("curated", store=store) as linker:
            first = [link.candidates[0] if link.candidates else None for link in linker.link_batch(data.mentions)]
    sure = [one.probability or 0.0 if one else 0.0 for one in first]
    return ranked(sure, [one.entity_id if one else None for one in first], data)


def by_wratio(data: Curated) -> Ranked:
    """The nearest names by WRatio, as sure as its score."""
    names = [name for name, _ in data.names]
    found = [process.extractOne(mention, names, scorer=fuzz.WRatio) for mention in data.mentions]
    return ranked([score / 100 for _, score, _ in found], [data.names[row][1] for _, _, row in found], data)


def processor_ms(link: Callable[[Sequence[str]], object], asked: Sequence[str]) -> float:
    """Milliseconds of processor time of all threads, for each mention."""
    start = time.process_time()
    link(asked)
    return (time.process_time() - start) / len(asked) * 1e3


def timed(base: Path, size: int, folder: Path) -> tuple[float, float, float]:
    """Milliseconds a link among `size` names: a name of the base, a slip, a slip by rapidfuzz."""
    rows = list(islice(read_tsv(base), size))
    names = [row["name"] for row in rows]
    part = folder / "part.tsv"
    part.write_text("id\tname\n" + "".join(f"{row['id']}\t{row['name']}\n" for row in rows), "utf-8")
    rng = random.Random(0)
    known = rng.sample(names, N_TIMED)
    slips = [edit_character(name, rng) for name in rng.sample(names, N_TIMED)]
    load_base(part, collection=f"of-{size}", store=str(folder))
    with EntityLinker.open(f"of-{size}", store=str(folder)) as linker:
        deque(linker.link_batch([f"{name} x" for name in known[:64]]), maxlen=0)

        def link(asked: Sequence[str]) -> None:
            deque(linker.link_batch(asked), maxlen=0)

        of_known, of_slips = processor_ms(link, known), processor_ms(link, slips)
    theirs = processor_ms(lambda asked: process.cdist(asked, names, scorer=fuzz.ratio), slips)
    return of_known, of_slips, theirs


def sets_figures(folders: Sequence[Path]) -> Iterator[tuple[str, Figure]]:
    """Precision by recall, and calibration."""
    curves, curves_axes = new_figure("recall: entities that are found", "precision: links that are right")
    calibration, axes = new_figure("probability", "share that is right")
    axes.plot((0, 1), (0, 1), color="0.8", linewidth=1)
    for color, folder in zip(mpl.color_sequences["tab10"], folders, strict=False):
        data = read(folder)
        title = TITLES.get(folder.name, folder.name)
        ours = by_linker(folder, data)
        curves_axes.plot(*ours.curve(), color=color, label=title)
        curves_axes.plot(*by_wratio(data).curve(), color=color, linestyle=":")
        recall, precision = ours.at(DEFAULT_THRESHOLD)
        curves_axes.plot(recall, precision, color=color, marker="o")
        axes.plot(*ours.bins(), color=color, marker="o", markersize=4, label=title)
        click.echo(f"{title}: at {DEFAULT_THRESHOLD} precision {precision:.3f}, recall {recall:.3f}")
    curves_axes.plot([], [], color="0.4", linestyle=":", label="the same by WRatio")
    curves_axes.plot(
        [], [], color="0.4", marker="o", linestyle="", label=f"threshold {DEFAULT_THRESHOLD} (the default)"
    )
    for one in (curves_axes, axes):
        one.set(xlim=(0, 1.01), ylim=(0, 1.01))
        one.legend(frameon=False, loc="lower left" if one is curves_axes else "upper left")
    yield "precision-recall", curves
    yield "reliability", calibration


def size_figure(base: Path) -> tuple[str, Figure]:
    """Time by size."""
    with tempfile.TemporaryDirectory() as folder:
        measured = [timed(base, size, Path(folder)) for size in SIZES]
    figure, axes = new_figure("names in the base", "ms of processor time a link")
    for label, line, times in zip(
        ("a name of the base", "one slip", "one slip, rapidfuzz over all names"),
        ("-", "-", ":"),
        zip(*measured, strict=True),
        strict=True,
    ):
        axes.plot(SIZES, times, line, marker="o", markersize=4, label=label)
        click.echo(f"{label}: " + ", ".join(f"{size:,}: {ms:.2f} ms" for size, ms in zip(SIZES, times, strict=True)))
    axes.set(xscale="log", yscale="log", ylim=(0.01, 100), xticks=SIZES)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.legend(frameon=False, loc="upper left")
    return "time-by-size", figure


def new_figure(x: str, y: str) -> tuple[Figure, Axes]:
    """A figure with one plot, and the names of its axes."""
    figure = Figure(figsize=(6, 3.8), layout="constrained")
    axes = figure.subplots()
    axes.set(xlabel=x, ylabel=y)
    axes.grid(color="0.93")
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


@click.command()
@click.argument("folders", nargs=-1, type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option(
    "--base", type=click.Path(path_type=Path, exists=True, dir_okay=False), help="Draw the time by size, too."
)
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), required=True, help="Where the SVG files go.")
def main(folders: tuple[Path, ...], base: Path | None, out: Path) -> None:
    """Draw the figures into files, and print what they are made of."""
    figures = [*(sets_figures(folders) if folders else ()), *([size_figure(base)] if base else ())]
    out.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "figures", "font.size": 10}):
        for name, figure in figures:
            figure.savefig(out / f"{name}.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
