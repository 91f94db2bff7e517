"""Fine-tuning from files to a checkpoint in one call: what `pearl-qdrant train fit` does."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from ingest.io.report import ReadReport
from pearl_qdrant.encoder.checkpoint import PearlConfig
from pearl_qdrant.encoder.loading import load_encoder
from pearl_qdrant.errors import CheckpointError
from training.augment.draw import open_augmenter
from training.batches import BatchMaker, new_batch_maker, plan_steps
from training.examples.example import Example, count_labels, entity_types_of
from training.examples.files import read_negatives, read_training_files
from training.finetune.objective import NetworkTeacher, Teacher, as_teacher, fit, read_alike
from training.finetune.request import FitConfig, FitRequest, FitResult
from training.networks.checkpoints import BaseModel, find_device, open_base_model, write_network
from training.options import TrainingEvents, as_paths, refuse_overwriting
from training.training_loop import local_device, process_group, shard_of_environment, wait_for_all

TRAINING = "training"
"""Folder within the checkpoint's folder for state and log."""


def fit_model(  # long: its arguments, and the run with all of its options
    request: FitRequest,
    *,
    given: Collection[str] | None = None,
    max_seconds: float | None = None,
    events: TrainingEvents | None = None,
) -> FitResult:
    """Fine-tune an encoder on phrases; the same call resumes a run that was interrupted.

    Args:
        request: What to train on, how, and where to write.
        given: Names of the arguments that the caller set, for `FitRequest.check`.
        max_seconds: Stop after the first step that ends so late; None: take all steps.
        events: Gets `examples_read` and `types_at_risk`.

    Raises:
        OptionError: If arguments contradict each other, there is nothing to learn from, or `out` is an input.
        InputError: If an input cannot be read, or has too many bad rows.
        ModelError: If the base model or a teacher cannot be loaded.
        TrainingError: If `out` holds the state of another run, or the loss diverges.
    """
    request.check(given)
    refuse_overwriting(
        request.out,
        request.base_model,
        *as_paths(request.phrases),
        request.character_encoder,
    )
    events = events or TrainingEvents()
    out, device = Path(request.out), local_device(find_device(request.device))
    base = _open_base(request, out)
    examples = read_training_files(
        request.phrases, request.aliases, min_count=request.min_count, max_errors=request.max_errors, events=events
    )
    plain = _read_plain(request, events)
    steps = request.steps or plan_steps(
        len(examples),
        request.batch_options(),
        has_negatives=request.hard_negatives is not None,
        world_size=shard_of_environment().world_size,
    )
    config = request.fit_config(steps=steps, device=str(device))
    if base.has_trained_head and config.type_weight > 0:
        _report_types(base, examples, events)
    teacher, distil_from = _open_teachers(request, base, str(device), distils=bool(plain))
    with process_group(device) as shard:
        negatives = (
            None
            if request.hard_negatives is None
            else read_negatives(Path(request.hard_negatives), ReadReport(max_errors=request.max_errors))
        )
        maker = new_batch_maker(
            examples,
            request.batch_options(),
            augment=open_augmenter(
                [path for path in as_paths(request.phrases) if path.is_dir()],
                wordnet=None if request.wordnet is None else Path(request.wordnet),
                token_variants=as_paths(request.token_variants),
                paraphrases=as_paths(request.paraphrases),
                with_aliases=not request.paper_settings,
            ),
            negatives=negatives,
            plain=plain,
            shard=shard,
        )
        base.network.to(device)
        done = fit(
            base.network,
            base.tokenizer,
            maker,
            config,
            out / TRAINING,
            resume=not request.restart,
            teacher=teacher,
            distil_from=distil_from,
            prefix=base.config.prefix,
            max_seconds=max_seconds,
        )
        if shard.rank == 0:
            described = _describe(base, examples, config, maker)
            write_network(out, base.network.cpu(), described, transformer=base.folder)
        wait_for_all()
    return FitResult(out, done, len(examples), shard.rank == 0)


def _describe(base: BaseModel, examples: list[Example], config: FitConfig, maker: BatchMaker) -> PearlConfig:
    """pearl.json of the fine-tuned network, with the record of this run."""
    record = {**base.config.training, "fit": {**asdict(config), **maker.identity(), "examples": len(examples)}}
    counts = base.config.label_counts
    if config.type_weight > 0:
        # The head has not lost what it learnt before this run; a plain encoder's counts are all 0.
        counts = tuple(old + new for old, new in zip(counts, count_labels(examples), strict=True))
    return base.config.model_copy(update={"label_counts": counts, "training": record})


def _open_base(request: FitRequest, out: Path) -> BaseModel:
    """Load the network to start from."""
    return open_base_model(
        str(request.base_model),
        name=request.name or out.name,
        character=None if request.character_encoder is None else Path(request.character_encoder),
        pooling=request.pooling,
        prefix=request.prefix,
        seed=request.seed,
    )


def _read_plain(request: FitRequest, events: TrainingEvents) -> list[str]:
    """Read the phrases that are distilled."""
    if not request.distil:
        return []
    found = read_training_files(request.distil, min_count=1, max_errors=request.max_errors, events=events)
    return [example.name for example in found]


def _report_types(base: BaseModel, examples: list[Example], events: TrainingEvents) -> None:
    """Report that a type head which learns only some types will forget the others."""
    known, taught = entity_types_of(base.config.label_counts), entity_types_of(count_labels(examples))
    if taught and known - taught:
        events.types_at_risk(len(known & taught), len(known))


def _open_teachers(
    request: FitRequest, base: BaseModel, device: str, *, distils: bool
) -> tuple[Teacher | None, Teacher | None]:
    """Open the teacher, and the encoder that is distilled; the same object if they are the same model."""
    start = str(request.base_model)
    teacher = None if request.teacher is None else _open_teacher(request.teacher, request, base, device)
    if not distils:
        return teacher, None
    return teacher, teacher if request.teacher == start else _open_teacher(start, request, base, device)


def _open_teacher(model: str, request: FitRequest, base: BaseModel, device: str) -> Teacher:
    if device != "cpu":
        with suppress(CheckpointError):  # no weights for torch
            found = open_base_model(model, name="teacher")
            if read_alike(found, base):
                found.network.type_head = None
                return NetworkTeacher(found.network, found.tokenizer, device=device)
    # A teacher whose weights no GPU can take runs on the CPU, unless a GPU was requested.
    return as_teacher(load_encoder(model, device="auto" if request.device == "auto" else device))
