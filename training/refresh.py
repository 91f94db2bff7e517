"""The refresh of an encoder: its state, the tables of the base, and the stages.

The base becomes two tables: what is learned, and what is measured afterwards.
"""

from __future__ import annotations

import json
import random
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import chain, compress
from operator import not_
from pathlib import Path
from typing import Any

import torch

from ingest.formats import open_reader
from ingest.io.report import ReadReport
from pearl_qdrant.cells import join_list
from pearl_qdrant.encoder.checkpoint import TORCH_FILE, is_checkpoint
from pearl_qdrant.encoder.loading import find_model, load_encoder
from pearl_qdrant.errors import InputError, OptionError
from pearl_qdrant.records import Entity
from pearl_qdrant.store.system import write_atomically
from training.batches import N_PLAIN
from training.corpus.typing import vocabulary_phrases, write_predicted_types
from training.evaluation.data import OwnBase
from training.evaluation.linking_methods import Linker, LoadedBases
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
    Compared,
    EvaluationOptions,
    HeadOptions,
    RefreshEvents,
    RefreshRequest,
    RefreshResult,
    Verdict,
    as_paths,
    refuse_overwriting,
)

FILE = "refresh.json"

MAX_HELD_OUT = 2000  # entities kept out of training, of a tenth of the base: enough for an interval of two points
LEAST_MENTIONS = 50  # those with aliases among them that a verdict needs
MAX_MEASURED, MEASURED_MENTIONS = 20_000, 2000  # entities among which the aliases of those are linked, and aliases
HEAD_NAMES = 2000  # names of each type that the head is fitted to, at most
MICRO_BATCH, REPEATS = 64, 3  # how the pace of a step is measured
TEMPERATURE = 0.05

_OUTSIDE = str.maketrans("\t\n\r", "   ")


@dataclass(frozen=True, slots=True)
class BaseFiles:
    """Two tables that `ingest` reads."""

    learned: Path  # entities to learn from
    measured: Path  # entities that were kept out, and others to tell them from
    n_learned: int  # entities of the first
    n_held_out: int  # entities kept out
    n_with_aliases: int  # those of them that have aliases, the mentions of the measurement
    has_types: bool  # whether an entity to learn from has coarse types

    def __post_init__(self) -> None:
        for name in ("learned", "measured"):  # a state has them as text
            object.__setattr__(self, name, Path(getattr(self, name)))


def write_base_files(base: Sequence[Path], folder: Path, *, seed: int, max_errors: int | None) -> BaseFiles:
    """Read a base once and write both tables, `learned.tsv` and `measured.tsv`. Raises InputError if the base cannot be
    read, has too many bad rows, or fewer than two entities have aliases.
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
    in_test = [split_of(entity.entity_id) in TEST_SPLITS for entity in entities]
    test, rest = list(compress(entities, in_test)), list(compress(entities, map(not_, in_test)))
    measured = rng.sample(test, min(len(test), MAX_HELD_OUT))
    held_out = {entity.entity_id for entity in measured}
    learned = [entity for entity in entities if entity.entity_id not in held_out]
    others = rng.sample(rest, min(len(rest), MAX_MEASURED - len(measured)))
    _write(folder / "learned.tsv", learned)
    _write(folder / "measured.tsv", chain(measured, others))
    return BaseFiles(
        folder / "learned.tsv",
        folder / "measured.tsv",
        len(learned),
        len(held_out),
        sum(len(set(entity.names())) > 1 for entity in measured),
        any(entity.types for entity in learned),
    )


def _write(path: Path, entities: Iterable[Entity]) -> None:
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.write("id\tname\ttype\taliases\n")
        for entity in entities:
            lists = join_list(entity.types), join_list(dict.fromkeys(entity.aliases))
            cells = (entity.entity_id, entity.canonical_name, *lists)
            file.write("\t".join(cell.translate(_OUTSIDE) for cell in cells) + "\n")


def seconds_a_step(base: BaseModel, names: Sequence[str], batch_size: int, device: torch.device) -> float:
    """Seconds of a step of `batch_size` phrases like `names` and those distilled with them."""
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
    phrases = batch_size + 2 * N_PLAIN
    return min(seconds) * phrases / MICRO_BATCH


def refresh_model(request: RefreshRequest, *, events: RefreshEvents | None = None) -> RefreshResult:
    """Fine-tune an encoder on the names of a base, export it, and measure whether it helped.

    The same call resumes a run that was interrupted; a state is saved at least every five minutes.

    Args:
        request: From what, to where, and for how long.
        events: Gets `stage`.

    Raises:
        OptionError: If an argument is out of range, or the work folder has another run or other files.
        InputError: If the base cannot be read, has too many bad rows, or no aliases.
        ModelError: If the start cannot be loaded or trained.
        TrainingError: If the loss diverges.
    """
    return _Refresh(request, events or RefreshEvents()).run()


class _Refresh:
    def __init__(self, request: RefreshRequest, events: RefreshEvents) -> None:
        base, out = as_paths(request.base), Path(request.out)
        if not base:
            raise OptionError("base", "There is no base to learn from.")
        refuse_overwriting(out, *base, request.model)
        self.folder = Path(f"{out}.work") if request.work is None else Path(request.work)
        self.identity = {  # what the run depends on
            "base": [[str(path), path.stat().st_size if path.is_file() else None] for path in base],
            "model": request.model,
            "distil": [str(path) for path in as_paths(request.distil)],
            **{name: getattr(request, name) for name in ("batch_size", "ratio", "seed", "steps")},
            "minutes": None if request.steps else request.minutes,
        }
        self.request, self.events, self.base, self.out = request, events, base, out
        self.name = request.name or out.name
        self.done: dict[str, Any] = self._open()  # what each finished stage found, by its name

    def _open(self) -> dict[str, Any]:
        """Read the state of the folder, or begin there."""
        folder, path = self.folder, self.folder / FILE
        if path.exists() and not self.request.restart:
            stored = json.loads(path.read_text("utf-8"))
            if stored["identity"] != self.identity:
                other = sorted(key for key in self.identity if stored["identity"].get(key) != self.identity[key])
                raise OptionError(
                    "restart",
                    f"{folder} has a refresh with other values of: {', '.join(other)}. Give 'restart' to begin again, "
                    f"or another 'work' folder.",
                )
            done: dict[str, Any] = stored["done"]
            return done
        if path.exists():
            shutil.rmtree(folder)
        elif folder.exists() and any(folder.iterdir()):
            raise OptionError("work", f"{folder} has files, and no refresh wrote them. Give an empty folder.")
        folder.mkdir(parents=True, exist_ok=True)
        self._write({})
        return {}

    def _write(self, done: dict[str, Any]) -> None:
        write_atomically(
            self.folder / FILE, json.dumps({"identity": self.identity, "done": done}, indent=2, default=str)
        )

    def run(self) -> RefreshResult:
        """All stages."""
        request = self.request
        files = BaseFiles(**self._stage("base", lambda: asdict(write_base_files(
            self.base, self.folder, seed=request.seed, max_errors=request.max_errors
        ))))  # fmt: skip
        start: str = self._stage("start", self._prepare_start)
        typed: int = self._stage("phrases", lambda: self._prepare_phrases(start))
        self._stage("negatives", lambda: mine_negatives(
            self._path("negatives.txt"), aliases=files.learned, model=request.model, device=request.device
        ))  # fmt: skip
        steps: int = self._stage("steps", lambda: request.steps or self._plan_steps(start, files))
        self._stage("fit", lambda: self._fit(start, files, steps), detail=f"{steps:,} steps")
        self._stage("average", lambda: average_checkpoint(
            start, self._path("fitted"), self._path("averaged"), ratio=request.ratio
        ))  # fmt: skip
        has_head = files.has_types and typed > 0
        self._stage("head", lambda: self._fit_head(files) if has_head else None)
        last = self._path("typed" if has_head else "averaged")
        self._stage("export", lambda: asdict(export_checkpoint(last, self.out, name=self.name)))
        figures = tuple(Compared(**one) for one in self._stage("measure", lambda: self._measure(files)))
        result = RefreshResult(self.out, steps, files.n_learned, files.n_held_out, has_head, figures, verdict(figures))
        self._write(self.done | {"result": {**asdict(result), "start": request.model}})
        return result

    def _path(self, name: str) -> Path:
        return self.folder / name

    def _stage(self, name: str, run: Callable[[], Any], *, detail: str = "") -> Any:
        """Run a stage unless it is done; returns what it found."""
        if name in self.done:
            self.events.stage(name, "done already")
        else:
            self.events.stage(name, detail)
            self.done[name] = run()
            self._write(self.done)
        return self.done[name]

    def _prepare_start(self) -> str:
        """The start with weights for torch; those of a shipped model are rebuilt from its graph."""
        folder = find_model(self.request.model).folder
        if not is_checkpoint(folder) or (folder / TORCH_FILE).exists():
            return self.request.model
        rebuild_for_torch(folder, self._path("start"))
        return str(self._path("start"))

    def _prepare_phrases(self, start: str) -> int:
        """Phrases to distil, and the types that the start predicts for them; returns how many it is sure of."""
        base = open_base_model(start, name=self.name, seed=self.request.seed)
        phrases = vocabulary_phrases(base.folder / "tokenizer.json", seed=self.request.seed)
        self._path("phrases.txt").write_text("".join(f"NP__{phrase}\t1\n" for phrase in phrases), "utf-8")
        encoder = load_encoder(self.request.model, device=self.request.device)
        return write_predicted_types(self._path("types.tsv"), phrases, encoder)

    def _plan_steps(self, start: str, files: BaseFiles) -> int:
        """How many steps take the minutes of the request, at the pace of this machine."""
        base = open_base_model(start, name=self.name, seed=self.request.seed)
        names = [example.name for example in read_training_files(aliases=files.learned)[:1000]]
        pace = seconds_a_step(base, names, self.request.batch_size, find_device(self.request.device))
        return max(1, int(60 * self.request.minutes / pace))

    def _fit(self, start: str, files: BaseFiles, steps: int) -> None:
        request = self.request
        fit_model(
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
            )
        )

    def _fit_head(self, files: BaseFiles) -> None:
        """Fit the type head to the averaged vectors."""
        options, types = HeadOptions(max_each=HEAD_NAMES), self._path("types.tsv")
        paths, device = (self._path("averaged"), self._path("typed")), self.request.device
        train_head(*paths, aliases=files.learned, typed_names=types, options=options, device=device)

    def _measure(self, files: BaseFiles) -> list[dict[str, Any]]:
        """Aliases of the entities that were kept out, linked with the result and with the start."""
        if files.n_with_aliases < LEAST_MENTIONS:
            return []
        data = OwnBase(files.measured, max_errors=0)
        options = EvaluationOptions(splits=tuple(TEST_SPLITS), n_mentions=MEASURED_MENTIONS)
        with LoadedBases() as loaded:
            before, after = (
                _Ranking(Linker(load_encoder(model, device=self.request.device), loaded, name=name))
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


def verdict(figures: tuple[Compared, ...]) -> Verdict:
    """Whether a refresh helped: by the intervals of its figures, none of which may be worse."""
    if not figures:
        return "not measured"
    if any(one.high < 0 for one in figures):
        return "worse"
    return "better" if any(one.low > 0 for one in figures) else "no difference"
