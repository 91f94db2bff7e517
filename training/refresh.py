"""The refresh of an encoder: its time, its state, the tables of the base, and the stages.

One budget is for all stages, of which each but the fit has a share that it does not exceed:

    phrases, negatives, head, measure    cut to their share: fewer names at the pace that this machine has shown
    start, average, export               take what they take; the last two are foreseen from the first
    fit                                  what is left before those after it; it stops when its time is over

The base becomes two tables: what is learned, and what is measured afterwards.
"""

from __future__ import annotations

import json
import math
import random
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import torch

from ingest.formats import open_reader
from ingest.io.report import ReadReport
from pearl_qdrant.cells import join_list
from pearl_qdrant.encoder.checkpoint import TORCH_FILE, is_checkpoint
from pearl_qdrant.encoder.find_model import find_model
from pearl_qdrant.encoder.loading import load_encoder
from pearl_qdrant.encoder.protocol import Encoded, Encoder, ModelInfo
from pearl_qdrant.errors import InputError, OptionError
from pearl_qdrant.phrase_types import ENTITY_TYPES
from pearl_qdrant.records import Entity
from pearl_qdrant.store.atomic import write_atomically
from training.corpus.typing import vocabulary_phrases, write_predicted_types
from training.evaluation.data import OwnBase
from training.evaluation.linking.methods import Linker, LoadedBases
from training.evaluation.run import evaluate
from training.evaluation.tasks.linking import own_base_tasks
from training.examples.example import TEST_SPLITS, split_of
from training.examples.files import read_training_files
from training.export.export_checkpoint import export_checkpoint, rebuild_for_torch
from training.finetune.fit_model import fit_model
from training.finetune.request import FitRequest
from training.hard_negatives import mine_negatives
from training.head import train_head
from training.networks.checkpoints import BaseModel, average_checkpoint, find_device, open_base_model
from training.networks.phrase_vectors import pool_phrases
from training.options import (
    BatchOptions,
    Compared,
    EvaluationOptions,
    HeadOptions,
    RefreshEvents,
    RefreshRequest,
    RefreshResult,
    TrainingEvents,
    Verdict,
    as_paths,
    check_bounds,
    refuse_overwriting,
)

FILE = "refresh.json"

PHRASES, NEGATIVES, HEAD, MEASURE = 0.1, 0.1, 0.15, 0.2
"""Shares of the budget, at most."""

EXPORT = 0.1
"""The share that is foreseen for average and export where the start took no time: it had weights for torch."""

EXPORT_OVER_START = 1.8
"""Average and export take so many times what it takes to rebuild the weights of the start from its graph."""

MAX_HELD_OUT, LEAST_MENTIONS = 2000, 50
"""Entities kept out of training, of a tenth of the base, at most: enough for an interval of two points; and those with
aliases among them that a verdict needs."""

MAX_MEASURED, MEASURED_MENTIONS = 20_000, 2000
"""Entities among which the aliases of those are linked, and aliases, at most."""

LEAST_MINED, LEAST_OF_A_TYPE, LEAST_MEASURED = 500, 50, 300
"""Entities that are mined, names of a type that are learned, and entities that are measured, however short the time."""

LOADED, LINKED = 2, 50
"""What a name costs that is loaded into the collections of the measurement, and a mention that is linked in them, as
multiples of encoding a name."""

MICRO_BATCH, REPEATS, FORWARD = 64, 3, 1 / 3
"""How the pace of a step is measured, and the share of a forward pass in a pass with gradients."""

TEMPERATURE = 0.05

_OUTSIDE = str.maketrans("\t\n\r", "   ")


@dataclass(slots=True)
class Budget:
    """What a refresh may take, and has taken.

    Attributes:
        seconds: For all of it; infinity: no limit, so that nothing is cut.
        spent: Seconds that earlier runs took, before this one resumed.
        clock: Returns seconds.
    """

    seconds: float
    spent: float = 0.0
    clock: Callable[[], float] = time.monotonic
    _since: float = field(init=False)

    def __post_init__(self) -> None:
        self._since = self.clock()

    @property
    def used(self) -> float:
        """Seconds so far."""
        return self.spent + self.clock() - self._since

    @property
    def left(self) -> float:
        """Seconds that are left, at least 0."""
        return max(0.0, self.seconds - self.used)

    def share(self, part: float) -> float:
        """The seconds of a share, or what is left if that is less."""
        return min(part * self.seconds, self.left)

    def count(self, part: float, cost: float, *, least: int, most: int) -> int:
        """How many items of a cost in seconds are in a share, between `least` and `most`."""
        seconds = self.share(part)
        return most if math.isinf(seconds) else min(most, max(least, int(seconds / cost)))

    def before(self, seconds: float) -> float:
        """What is left before so many seconds at the end."""
        return max(0.0, self.left - seconds)


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
        """Read the state of a folder, or begin there. Raises OptionError if it has another run, or other files."""
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
        write_atomically(self.folder / FILE, json.dumps(record, indent=2, default=str))


@dataclass(frozen=True, slots=True)
class BaseFiles:
    """Two tables that `ingest` reads.

    Attributes:
        learned: Entities to learn from.
        measured: Entities that were kept out, and others to tell them from.
        n_learned: Entities of the first.
        n_names: Their names.
        n_measured_names: Names of the second.
        n_held_out: Entities kept out.
        n_with_aliases: Those of them that have aliases, the mentions of the measurement.
        has_types: Whether an entity to learn from has coarse types.
    """

    learned: Path
    measured: Path
    n_learned: int
    n_names: int
    n_measured_names: int
    n_held_out: int
    n_with_aliases: int
    has_types: bool

    def __post_init__(self) -> None:
        for name in ("learned", "measured"):  # a state has them as text
            object.__setattr__(self, name, Path(getattr(self, name)))


def write_base_files(base: Sequence[Path], folder: Path, *, seed: int, max_errors: int | None) -> BaseFiles:
    """Read a base once and write both tables. Raises InputError if the base cannot be read, has too many bad rows, or
    fewer than two entities have aliases.

    Args:
        folder: Where to write `learned.tsv` and `measured.tsv`.
        seed: Determines the samples.
        max_errors: Bad rows that the base may have.
    """
    rng = random.Random(seed)
    with open_reader([str(path) for path in base]) as reader:
        entities = list(reader.read(ReadReport(max_errors=max_errors)))
    with_aliases = [entity for entity in entities if len(set(entity.names())) > 1]
    if len(with_aliases) < 2:
        message = (
            f"{len(with_aliases)} of its {len(entities)} entities have an alias. A refresh learns which names mean the "
            f"same: it needs a base with aliases."
        )
        raise InputError(", ".join(map(str, base)), None, message)
    # By the split of the id, so that a later release keeps out the same entities.
    test: list[Entity] = []
    rest: list[Entity] = []
    for entity in entities:
        (test if split_of(entity.entity_id) in TEST_SPLITS else rest).append(entity)
    measured = rng.sample(test, min(len(test), MAX_HELD_OUT))
    held_out = {entity.entity_id for entity in measured}
    learned = [entity for entity in entities if entity.entity_id not in held_out]
    others = rng.sample(rest, min(len(rest), MAX_MEASURED - len(measured)))
    n_names = _write(folder / "learned.tsv", learned)
    n_measured_names = _write(folder / "measured.tsv", chain(measured, others))
    return BaseFiles(
        folder / "learned.tsv",
        folder / "measured.tsv",
        len(learned),
        n_names,
        n_measured_names,
        len(held_out),
        sum(len(set(entity.names())) > 1 for entity in measured),
        any(entity.types for entity in learned),
    )


def write_some(table: Path, path: Path, rows: Sequence[int]) -> Path:
    """Write some rows of such a table, by their numbers from 0; returns the new one."""
    wanted = {number + 1 for number in rows} | {0}
    with table.open(encoding="utf-8") as source, path.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(line for number, line in enumerate(source) if number in wanted)
    return path


def _write(path: Path, entities: Iterable[Entity]) -> int:
    """Write a table; returns the number of names."""
    n_names = 0
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.write("id\tname\ttype\taliases\n")
        for entity in entities:
            lists = join_list(entity.types), join_list(dict.fromkeys(entity.aliases))
            cells = (entity.entity_id, entity.canonical_name, *lists)
            file.write("\t".join(cell.translate(_OUTSIDE) for cell in cells) + "\n")
            n_names += len(set(entity.names()))
    return n_names


def seconds_a_step(base: BaseModel, names: Sequence[str], batch_size: int, device: torch.device) -> tuple[float, float]:
    """Seconds of a step of `batch_size` phrases and those distilled with them, and of encoding a name like `names`."""
    network = base.network.to(device).train()
    sample = [names[i % len(names)] for i in range(MICRO_BATCH)]
    seconds = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        pool_phrases(network, base.tokenizer, sample, max_tokens=24, micro_batch=MICRO_BATCH).sum().backward()  # type: ignore[no-untyped-call]
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        seconds.append(time.perf_counter() - start)
        network.zero_grad(set_to_none=True)
    # The phrases that are distilled go through the network and, without gradients, through its start.
    phrases = batch_size + 2 * BatchOptions().n_plain
    return min(seconds) * phrases / MICRO_BATCH, min(seconds) / MICRO_BATCH * FORWARD


def refresh_model(request: RefreshRequest, *, events: RefreshEvents | None = None) -> RefreshResult:
    """Fine-tune an encoder on the names of a base, export it, and measure whether it helped.

    The same call resumes a run that was interrupted; a state is saved at least every five minutes. The time of earlier
    runs counts.

    Args:
        request: From what, to where, and for how long.
        events: Gets `stage` and `progress`.

    Raises:
        OptionError: If an argument is out of range, or the work folder has another run or other files.
        InputError: If the base cannot be read, has too many bad rows, or no aliases.
        ModelError: If the start cannot be loaded or trained.
        TrainingError: If the loss diverges.
    """
    return _Refresh(request, events or RefreshEvents()).run()


class _Refresh:
    """One run."""

    def __init__(self, request: RefreshRequest, events: RefreshEvents) -> None:
        base, out = as_paths(request.base), Path(request.out)
        if not base:
            raise OptionError("base", "There is no base to learn from.")
        check_bounds(request)
        work = Path(f"{out}.work") if request.work is None else Path(request.work)
        refuse_overwriting(out, *base, request.model)
        identity = {
            "base": [[str(path), path.stat().st_size if path.is_file() else None] for path in base],
            "model": request.model,
            "distil": [str(path) for path in as_paths(request.distil)],
            **{name: getattr(request, name) for name in ("batch_size", "ratio", "seed", "steps")},
            "minutes": None if request.steps else request.minutes,
        }
        self.request, self.events, self.base, self.out = request, events, base, out
        self.state = RefreshState.open(work, identity, restart=request.restart)
        self.budget = Budget(math.inf if request.steps else 60 * request.minutes, self.state.seconds)
        self.name = request.name or out.name

    def run(self) -> RefreshResult:
        """All stages."""
        files = BaseFiles(**self._stage("base", lambda: asdict(write_base_files(
            self.base, self.state.folder, seed=self.request.seed, max_errors=self.request.max_errors
        ))))  # fmt: skip
        start: dict[str, Any] = self._stage("start", self._prepare_start)
        phrases: dict[str, Any] = self._stage("phrases", lambda: self._prepare_phrases(start["model"]))
        pace: float = phrases["seconds_a_name"]
        self._stage("negatives", lambda: self._mine(files, pace))
        plan: dict[str, Any] = self._stage("steps", lambda: self._plan_steps(start["model"], files))
        has_head = files.has_types and phrases["typed"] > 0
        seconds = self.budget.before(self._foreseen(files, plan["seconds_a_name"]))
        steps: int = self._stage(
            "fit", lambda: self._fit(start["model"], files, plan["steps"], seconds), detail=f"{plan['steps']:,} steps"
        )
        self._stage("average", lambda: average_checkpoint(
            start["model"], self._path("fitted"), self._path("averaged"), ratio=self.request.ratio
        ))  # fmt: skip
        self._stage("head", lambda: self._fit_head(files, plan["seconds_a_name"]) if has_head else None)
        last = self._path("typed" if has_head else "averaged")
        self._stage("export", lambda: asdict(export_checkpoint(last, self.out, name=self.name)))
        figures = tuple(Compared(**one) for one in self._stage("measure", lambda: self._measure(files, pace)))
        result = RefreshResult(self.out, steps, files.n_learned, files.n_held_out, has_head, figures, verdict(figures))
        self.state.finish("result", {**asdict(result), "start": self.request.model}, seconds=self.budget.used)
        return result

    def _path(self, name: str) -> Path:
        return self.state.folder / name

    def _stage(self, name: str, run: Callable[[], Any], *, detail: str = "") -> Any:
        """Run a stage unless it is done; returns what it found."""
        if name in self.state.done:
            self.events.stage(name, "done already")
        else:
            left = self.budget.left
            time_left = "" if math.isinf(left) else f"{left / 60:.1f} of {self.request.minutes:g} minutes left"
            self.events.stage(name, ", ".join(filter(None, (detail, time_left))))
            self.state.finish(name, run(), seconds=self.budget.used)
        return self.state.done[name]

    def _prepare_start(self) -> dict[str, Any]:
        """The start with weights for torch; those of a shipped model are rebuilt from its graph."""
        folder = find_model(self.request.model).folder
        if not is_checkpoint(folder) or (folder / TORCH_FILE).exists():
            return {"model": self.request.model, "seconds": 0.0}
        before = self.budget.used
        rebuild_for_torch(folder, self._path("start"))
        return {"model": str(self._path("start")), "seconds": self.budget.used - before}

    def _prepare_phrases(self, start: str) -> dict[str, Any]:
        """Phrases to distil, and the types that the start predicts for them; the pace of its encoder."""
        base = open_base_model(start, name=self.name, seed=self.request.seed)
        phrases = vocabulary_phrases(base.folder / "tokenizer.json", seed=self.request.seed)
        self._path("phrases.txt").write_text("".join(f"NP__{phrase}\t1\n" for phrase in phrases), "utf-8")
        encoder = load_encoder(self.request.model, device=self.request.device)
        share, before = self.budget.share(PHRASES), self.budget.used
        typed, encoded = write_predicted_types(
            self._path("types.tsv"),
            phrases,
            encoder,
            is_over=lambda: self.budget.used - before >= share,
            on_progress=self.events.progress,
        )
        return {"typed": typed, "seconds_a_name": (self.budget.used - before) / max(1, encoded)}

    def _mine(self, files: BaseFiles, pace: float) -> int:
        """Hard negatives, of a part of the base where the time is short."""
        cost, table = pace * files.n_names / files.n_learned, files.learned
        most = self.budget.count(NEGATIVES, cost, least=LEAST_MINED, most=files.n_learned)
        if most < files.n_learned:
            rows = random.Random(self.request.seed).sample(range(files.n_learned), most)
            table = write_some(files.learned, self._path("mined.tsv"), rows)
        return mine_negatives(
            self._path("negatives.txt"),
            aliases=table,
            model=self.request.model,
            device=self.request.device,
            events=_Counted(self.events),
        )

    def _plan_steps(self, start: str, files: BaseFiles) -> dict[str, Any]:
        """How many steps there is time for, and the pace of the network."""
        if math.isinf(self.budget.seconds):
            return {"steps": self.request.steps, "seconds_a_name": 0.0}
        device = find_device(self.request.device)
        base = open_base_model(start, name=self.name, seed=self.request.seed)
        names = [example.name for example in read_training_files(aliases=files.learned)[:1000]]
        a_step, a_name = seconds_a_step(base, names, self.request.batch_size, device)
        seconds = self.budget.before(self._foreseen(files, a_name))
        return {"steps": max(1, int(seconds / a_step)), "seconds_a_name": a_name}

    def _foreseen(self, files: BaseFiles, a_name: float) -> float:
        """Seconds of the stages after the fit, as far as the stages before it show; without a budget 0."""
        if math.isinf(self.budget.seconds):
            return 0.0
        start, phrases = self.state.done["start"]["seconds"], self.state.done["phrases"]
        seconds: float = EXPORT_OVER_START * start or EXPORT * self.budget.seconds
        if files.has_types and phrases["typed"]:
            most = len(ENTITY_TYPES) * self._head_names(a_name)
            seconds += a_name * min(files.n_names + phrases["typed"], most)
        if files.n_with_aliases >= LEAST_MENTIONS:
            rows, mentions, a_row, a_mention = self._measured(files, phrases["seconds_a_name"])
            seconds += rows * a_row + mentions * a_mention
        return seconds

    def _head_names(self, a_name: float) -> int:
        """Names of each type that the head is fitted to, at most."""
        cost, most = a_name * len(ENTITY_TYPES), HeadOptions().max_each
        return self.budget.count(HEAD, cost, least=min(most, LEAST_OF_A_TYPE), most=most)

    def _measured(self, files: BaseFiles, pace: float) -> tuple[int, int, float, float]:
        """Entities and mentions that are measured, and the seconds that each takes."""
        n_entities = min(files.n_held_out + files.n_learned, MAX_MEASURED)
        a_row = 2 * pace * LOADED * (1 + files.n_measured_names / n_entities)
        a_mention = 2 * pace * LINKED
        rows = self.budget.count(MEASURE / 2, a_row, least=LEAST_MEASURED, most=n_entities)
        mentions = self.budget.count(MEASURE / 2, a_mention, least=LEAST_MENTIONS, most=MEASURED_MENTIONS)
        return rows, mentions, a_row, a_mention

    def _fit(self, start: str, files: BaseFiles, steps: int, seconds: float) -> int:
        """Fine-tune; returns the steps that were taken."""
        request = self.request
        done = fit_model(
            FitRequest(
                base_model=start,
                out=self._path("fitted"),
                aliases=files.learned,
                hard_negatives=self._path("negatives.txt"),
                distil=request.distil or self._path("phrases.txt"),
                steps=steps,
                batch_size=request.batch_size,
                schedule="cosine",
                temperature=TEMPERATURE,
                type_weight=0.0,
                name=self.name,
                seed=request.seed,
                device=request.device,
            ),
            max_seconds=None if math.isinf(seconds) else seconds,
        )
        return done.steps

    def _fit_head(self, files: BaseFiles, pace: float) -> None:
        """Fit the type head to the averaged vectors."""
        train_head(
            self._path("averaged"),
            self._path("typed"),
            aliases=files.learned,
            typed_names=self._path("types.tsv"),
            options=HeadOptions(max_each=self._head_names(pace)),
            name=self.name,
            device=self.request.device,
        )

    def _measure(self, files: BaseFiles, pace: float) -> list[dict[str, Any]]:
        """Aliases of the entities that were kept out, linked with the result and with the start."""
        if files.n_with_aliases < LEAST_MENTIONS:
            return []
        rows, mentions, *_ = self._measured(files, pace)
        n_entities, table = min(files.n_held_out + files.n_learned, MAX_MEASURED), files.measured
        if rows < n_entities:
            table = write_some(files.measured, self._path("measured_part.tsv"), range(rows))
        data = OwnBase(table, max_errors=0)
        options = EvaluationOptions(splits=tuple(TEST_SPLITS), n_mentions=mentions)
        counted = _Counted(self.events, 2 * (files.n_measured_names * rows // n_entities + rows))
        with LoadedBases(None) as loaded:
            before, after = (
                _Ranking(Linker(counted.over(load_encoder(model, device=self.request.device)), loaded, name=name))
                for name, model in (("before", self.request.model), ("after", str(self.out)))
            )
            report = evaluate(data, after, [before], own_base_tasks(data.name), options)
        found = []
        for result in report.results:
            difference, outcomes = result.differences["before"], result.outcomes
            values = outcomes["before"].value, outcomes["after"].value
            found.append(asdict(Compared(result.task.group, *values, difference.low, difference.high)))
        return found


class _Ranking:
    """A linker of which only the rankings are measured: its other figures take most of the time."""

    def __init__(self, linker: Linker) -> None:
        self.name, self.supports, self.rank = linker.name, linker.supports, linker.rank


class _Counted(TrainingEvents):
    """Reports the names that mining or encoders encode, up to what is known to come: mentions come on top."""

    def __init__(self, events: RefreshEvents, total: int | None = None) -> None:
        self._events, self._total, self._done = events, total, 0

    def names_encoded(self, task: str, count: int) -> None:
        """Report some names."""
        done = self._done + count
        self._done = done if self._total is None else min(self._total, done)
        self._events.progress(self._done, self._total)

    def over(self, encoder: Encoder) -> Encoder:
        """The encoder, counted."""
        return _CountedEncoder(encoder, self)


@dataclass(frozen=True, slots=True)
class _CountedEncoder:
    encoder: Encoder
    counted: _Counted

    @property
    def info(self) -> ModelInfo:
        return self.encoder.info

    def encode(self, names: Sequence[str]) -> Encoded:
        found = self.encoder.encode(names)
        self.counted.names_encoded("", len(names))
        return found


def verdict(figures: tuple[Compared, ...]) -> Verdict:
    """Whether a refresh helped: by the intervals of its figures, none of which may be worse."""
    if not figures:
        return "not measured"
    if any(one.high < 0 for one in figures):
        return "worse"
    return "better" if any(one.low > 0 for one in figures) else "no difference"
