"""A refreshed encoder from a base in one call: what `pearl-qdrant train refresh` does.

from pearl_qdrant import RefreshRequest, refresh_model

print(refresh_model(RefreshRequest(base="umls.tsv", out="model/")).verdict)

Stages: cut the base in two, mine hard negatives, fit with distillation, average with the start, fit the type head where
the base has types, export, and link the aliases of the entities that were kept out with the start and with the result.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pearl_qdrant.encoder.checkpoint import TORCH_FILE, is_checkpoint
from pearl_qdrant.encoder.find_model import find_model
from pearl_qdrant.encoder.loading import load_encoder
from pearl_qdrant.encoder.protocol import Encoded, Encoder, ModelInfo
from pearl_qdrant.errors import OptionError
from pearl_qdrant.phrase_types import ENTITY_TYPES
from training.data.training_files import read_training_files
from training.evaluation.data import OwnBase
from training.evaluation.linking.loaded_bases import LoadedBases
from training.evaluation.linking.methods import Linker
from training.evaluation.run import evaluate
from training.evaluation.task import EvaluationOptions, LinkingOptions
from training.evaluation.tasks.linking import own_base_tasks
from training.events import TrainingEvents
from training.examples.example import TEST_SPLITS
from training.export.export_checkpoint import export_checkpoint, rebuild_for_torch
from training.finetune.fit_model import fit_model
from training.finetune.request import FitRequest
from training.head import train_head
from training.mining.hard_negatives import mine_negatives
from training.networks.average import average_checkpoint
from training.networks.checkpoints import find_device, open_base_model
from training.options import HeadOptions, as_paths, refuse_overwriting
from training.refresh.request import Compared, RefreshEvents, RefreshRequest, RefreshResult, Verdict
from training.refresh.stages import (
    EXPORT,
    EXPORT_OVER_START,
    HEAD,
    LEAST_MENTIONS,
    MAX_MEASURED,
    MEASURE,
    NEGATIVES,
    PHRASES,
    BaseFiles,
    Budget,
    RefreshState,
    seconds_a_step,
    vocabulary_phrases,
    write_base_files,
    write_phrases,
    write_predicted_types,
    write_some,
)

TEMPERATURE = 0.05

LEAST_MINED, LEAST_OF_A_TYPE, LEAST_MEASURED = 500, 50, 300
"""Entities that are mined, names of a type that are learned, and entities that are measured, however short the time."""

LOADED, LINKED = 2, 50
"""What a name costs that is loaded into the collections of the measurement, and a mention that is linked in them, as
multiples of encoding a name."""

MEASURED_MENTIONS = 2000
"""Aliases that are linked for the comparison, at most."""


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
        if not 0 < request.ratio <= 1:
            raise OptionError("ratio", f"'ratio' must be in (0, 1], not {request.ratio:g}.")
        if not request.minutes > 0 or (request.steps is not None and request.steps < 1):
            raise OptionError("minutes", "'minutes' and 'steps' must be positive.")
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
        self.budget = Budget(None if request.steps else 60 * request.minutes, self.state.seconds)
        self.name = request.name or out.name

    def run(self) -> RefreshResult:
        """All stages."""
        found = self._stage("base", self._cut_base)
        files = BaseFiles(**{**found, "learned": Path(found["learned"]), "measured": Path(found["measured"])})
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
        record = {**asdict(result), "model": str(result.model), "start": self.request.model}
        self.state.finish("result", record, seconds=self.budget.used)
        return result

    def _path(self, name: str) -> Path:
        return self.state.folder / name

    def _stage(self, name: str, run: Callable[[], Any], *, detail: str = "") -> Any:
        """Run a stage unless it is done; returns what it found."""
        if name in self.state.done:
            self.events.stage(name, "done already")
        else:
            left = self.budget.left
            time_left = "" if left is None else f"{left / 60:.1f} of {self.request.minutes:g} minutes left"
            self.events.stage(name, ", ".join(filter(None, (detail, time_left))))
            self.state.finish(name, run(), seconds=self.budget.used)
        return self.state.done[name]

    def _cut_base(self) -> dict[str, Any]:
        files = write_base_files(
            self.base, self.state.folder, seed=self.request.seed, max_errors=self.request.max_errors
        )
        return {**asdict(files), "learned": str(files.learned), "measured": str(files.measured)}

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
        write_phrases(self._path("phrases.txt"), phrases)
        encoder = load_encoder(self.request.model, device=self.request.device)
        share, before = self.budget.share(PHRASES), self.budget.used
        typed, encoded = write_predicted_types(
            self._path("types.tsv"),
            phrases,
            encoder,
            is_over=lambda: share is not None and self.budget.used - before >= share,
            on_progress=self.events.progress,
        )
        return {"typed": typed, "seconds_a_name": (self.budget.used - before) / max(1, encoded)}

    def _mine(self, files: BaseFiles, pace: float) -> int:
        """Hard negatives, of a part of the base where the time is short."""
        most = self.budget.count(NEGATIVES, pace * files.n_names / files.n_learned, least=LEAST_MINED)
        table = files.learned
        if most is not None and most < files.n_learned:
            rows = random.Random(self.request.seed).sample(range(files.n_learned), most)
            table = write_some(files.learned, self._path("mined.tsv"), rows)
        return mine_negatives(
            self._path("negatives.txt"),
            aliases=table,
            model=self.request.model,
            device=self.request.device,
            events=_Encoded(self.events),
        )

    def _plan_steps(self, start: str, files: BaseFiles) -> dict[str, Any]:
        """How many steps there is time for, and the pace of the network."""
        if self.budget.seconds is None:
            return {"steps": self.request.steps, "seconds_a_name": 0.0}
        device = find_device(self.request.device)
        base = open_base_model(start, name=self.name, seed=self.request.seed)
        names = [example.name for example in read_training_files(aliases=files.learned)[:1000]]
        a_step, a_name = seconds_a_step(base, names, self.request.batch_size, device)
        seconds = self.budget.before(self._foreseen(files, a_name)) or 0.0
        return {"steps": max(1, int(seconds / a_step)), "seconds_a_name": a_name}

    def _foreseen(self, files: BaseFiles, a_name: float) -> float:
        """Seconds of the stages after the fit, as far as the stages before it show; without a budget 0."""
        if self.budget.seconds is None:
            return 0.0
        start, phrases = self.state.done["start"]["seconds"], self.state.done["phrases"]
        seconds: float = EXPORT_OVER_START * start or EXPORT * self.budget.seconds
        if files.has_types and phrases["typed"]:
            most = len(ENTITY_TYPES) * (self._head_names(a_name) or 0)
            seconds += a_name * min(files.n_names + phrases["typed"], most)
        if files.n_with_aliases >= LEAST_MENTIONS:
            rows, mentions, a_row, a_mention = self._measured(files, phrases["seconds_a_name"])
            seconds += rows * a_row + mentions * a_mention
        return seconds

    def _head_names(self, a_name: float) -> int | None:
        """Names of each type that the head is fitted to, at most; None: as many as by default."""
        return self.budget.count(HEAD, a_name * len(ENTITY_TYPES), least=LEAST_OF_A_TYPE)

    def _measured(self, files: BaseFiles, pace: float) -> tuple[int, int, float, float]:
        """Entities and mentions that are measured, and the seconds that each takes."""
        n_entities = min(files.n_held_out + files.n_learned, MAX_MEASURED)
        a_row = 2 * pace * LOADED * (1 + files.n_measured_names / n_entities)
        a_mention = 2 * pace * LINKED
        rows = self.budget.count(MEASURE / 2, a_row, least=LEAST_MEASURED)
        mentions = self.budget.count(MEASURE / 2, a_mention, least=LEAST_MENTIONS)
        return (
            n_entities if rows is None else min(rows, n_entities),
            MEASURED_MENTIONS if mentions is None else min(mentions, MEASURED_MENTIONS),
            a_row,
            a_mention,
        )

    def _fit(self, start: str, files: BaseFiles, steps: int, seconds: float | None) -> int:
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
            max_seconds=seconds,
        )
        return done.steps

    def _fit_head(self, files: BaseFiles, pace: float) -> None:
        """Fit the type head to the averaged vectors."""
        most, default = self._head_names(pace), HeadOptions()
        train_head(
            self._path("averaged"),
            self._path("typed"),
            aliases=files.learned,
            typed_names=self._path("types.tsv"),
            options=default if most is None else replace(default, max_each=min(default.max_each, most)),
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
        options = EvaluationOptions(linking=LinkingOptions(tuple(TEST_SPLITS), mentions))
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


class _Encoded(TrainingEvents):
    """Counts the names that mining encodes."""

    def __init__(self, events: RefreshEvents) -> None:
        self._events, self._done = events, 0

    def names_encoded(self, task: str, count: int) -> None:
        """Report it."""
        self._done += count
        self._events.progress(self._done, None)


@dataclass(slots=True)
class _Counted:
    """Counts what encoders encode, up to what is known to come: mentions come on top."""

    events: RefreshEvents
    total: int
    done: int = 0

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
        found, counted = self.encoder.encode(names), self.counted
        counted.done = min(counted.total, counted.done + len(names))
        counted.events.progress(counted.done, counted.total)
        return found


def verdict(figures: tuple[Compared, ...]) -> Verdict:
    """Whether a refresh helped: by the intervals of its figures, none of which may be worse."""
    if not figures:
        return "not measured"
    if any(one.high < 0 for one in figures):
        return "worse"
    return "better" if any(one.low > 0 for one in figures) else "no difference"
