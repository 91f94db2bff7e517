"""A refreshed encoder from a base in one call: what `pearl-qdrant train refresh` does.

from pearl_qdrant import RefreshRequest, refresh_model

print(refresh_model(RefreshRequest(base="umls.tsv", out="model/")).verdict)

Stages: cut the base in two, mine hard negatives, fit with distillation, average with the start, fit the type head where
the base has types, export, and link the aliases of the entities that were kept out with the start and with the result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pearl_qdrant.encoder.checkpoint import TORCH_FILE, is_checkpoint
from pearl_qdrant.encoder.find_model import find_model
from pearl_qdrant.encoder.loading import load_encoder
from pearl_qdrant.errors import OptionError
from training.data.inputs import read_training_files
from training.evaluation.datasets.own_base import OwnBase
from training.evaluation.linking.loaded_bases import LoadedBases
from training.evaluation.linking.methods import Linker
from training.evaluation.run import evaluate
from training.evaluation.task import EvaluationOptions, LinkingOptions
from training.evaluation.tasks.linking import own_base_tasks
from training.events import TrainingEvents
from training.examples.splits import TEST_SPLITS
from training.export.export_checkpoint import export_checkpoint, rebuild_for_torch
from training.finetune.pipeline import fit_model
from training.finetune.request import FitRequest
from training.head.pipeline import train_head
from training.mining.pipeline import mine_negatives
from training.networks.average_checkpoint import average_checkpoint
from training.networks.base_network import find_device, open_base_model
from training.paths import as_paths, refuse_overwriting
from training.refresh.base_files import LEAST_MENTIONS, BaseFiles, write_base_files
from training.refresh.distillation import vocabulary_phrases, write_phrases, write_predicted_types
from training.refresh.request import Compared, RefreshEvents, RefreshRequest, RefreshResult, Verdict
from training.refresh.state import RefreshState
from training.refresh.step_time import seconds_a_step

TEMPERATURE = 0.05

LEAST_STEPS = 20

MEASURED_MENTIONS = 2000
"""Aliases that are linked for the comparison, at most."""


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
        self.name = request.name or out.name

    def run(self) -> RefreshResult:
        """All stages."""
        found = self._stage("base", self._cut_base)
        files = BaseFiles(**{**found, "learned": Path(found["learned"]), "measured": Path(found["measured"])})
        start = self._stage("start", self._prepare_start)
        self._stage("phrases", lambda: self._prepare_phrases(start))
        self._stage("negatives", lambda: mine_negatives(
            self._path("negatives.txt"), aliases=files.learned, model=self.request.model, device=self.request.device
        ))  # fmt: skip
        steps = self._stage("steps", lambda: self._choose_steps(start, files))
        self._stage("fit", lambda: self._fit(start, files, steps), detail=f"{steps:,} steps")
        self._stage("average", lambda: average_checkpoint(
            start, self._path("fitted"), self._path("averaged"), ratio=self.request.ratio
        ))  # fmt: skip
        has_new_head = self._stage("head", lambda: self._fit_head(files))
        last = self._path("typed" if has_new_head else "averaged")
        self._stage("export", lambda: asdict(export_checkpoint(last, self.out, name=self.name)))
        figures = tuple(Compared(**one) for one in self._stage("measure", lambda: self._measure(files)))
        result = RefreshResult(
            self.out, steps, files.n_learned, files.n_held_out, bool(has_new_head), figures, verdict(figures)
        )
        record = {**asdict(result), "model": str(result.model), "start": self.request.model}
        self.state.finish("result", record)
        return result

    def _path(self, name: str) -> Path:
        return self.state.folder / name

    def _stage(self, name: str, run: Callable[[], Any], *, detail: str = "") -> Any:
        """Run a stage unless it is done; returns what it found."""
        if name in self.state.done:
            self.events.stage(name, "done already")
        else:
            self.events.stage(name, detail)
            self.state.finish(name, run())
        return self.state.done[name]

    def _cut_base(self) -> dict[str, Any]:
        files = write_base_files(
            self.base, self.state.folder, seed=self.request.seed, max_errors=self.request.max_errors
        )
        return {**asdict(files), "learned": str(files.learned), "measured": str(files.measured)}

    def _prepare_start(self) -> str:
        """The start with weights for torch; those of a shipped model are rebuilt from its graph."""
        folder = find_model(self.request.model).folder
        if not is_checkpoint(folder) or (folder / TORCH_FILE).exists():
            return self.request.model
        rebuild_for_torch(folder, self._path("start"))
        return str(self._path("start"))

    def _prepare_phrases(self, start: str) -> int:
        """Phrases to distil, and the types that the start predicts for them; returns how many have a type."""
        base = open_base_model(start, name=self.name, seed=self.request.seed)
        phrases = vocabulary_phrases(base.folder / "tokenizer.json", seed=self.request.seed)
        write_phrases(self._path("phrases.txt"), phrases)
        encoder = load_encoder(self.request.model, device=self.request.device)
        return write_predicted_types(self._path("types.tsv"), phrases, encoder)

    def _choose_steps(self, start: str, files: BaseFiles) -> int:
        if self.request.steps is not None:
            return self.request.steps
        device = find_device(self.request.device)
        base = open_base_model(start, name=self.name, seed=self.request.seed)
        names = [example.name for example in read_training_files(aliases=files.learned)[:1000]]
        seconds = seconds_a_step(base, names, self.request.batch_size, device)
        return max(LEAST_STEPS, int(60 * self.request.minutes / seconds))

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

    def _fit_head(self, files: BaseFiles) -> bool:
        """Fit the type head to the averaged vectors, if base and start have types; else the start's head stays."""
        if not files.has_types or not self.state.done["phrases"]:
            return False
        train_head(
            self._path("averaged"),
            self._path("typed"),
            aliases=files.learned,
            typed_names=self._path("types.tsv"),
            name=self.name,
            device=self.request.device,
            events=TrainingEvents(),
        )
        return True

    def _measure(self, files: BaseFiles) -> list[dict[str, Any]]:
        """Aliases of the entities that were kept out, linked with the result and with the start."""
        if files.n_with_aliases < LEAST_MENTIONS:
            return []
        data = OwnBase(files.measured, max_errors=0)
        options = EvaluationOptions(linking=LinkingOptions(tuple(TEST_SPLITS), MEASURED_MENTIONS))
        with LoadedBases(None) as loaded:
            before, after = (
                Linker(load_encoder(model, device=self.request.device), loaded, name=name)
                for name, model in (("before", self.request.model), ("after", str(self.out)))
            )
            report = evaluate(data, after, [before], own_base_tasks(data.name), options)
        found = []
        for result in report.results:
            difference, outcomes = result.differences["before"], result.outcomes
            values = outcomes["before"].value, outcomes["after"].value
            found.append(asdict(Compared(result.task.group, *values, difference.low, difference.high)))
        return found


def verdict(figures: tuple[Compared, ...]) -> Verdict:
    """Whether a refresh helped: by the intervals of its figures, none of which may be worse."""
    if not figures:
        return "not measured"
    if any(one.high < 0 for one in figures):
        return "worse"
    return "better" if any(one.low > 0 for one in figures) else "no difference"
