"""Fine-tuning from files to a checkpoint in one call: what `pearl-qdrant train fit` does."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

from ingest.io.report import ReadReport
from pearl_qdrant.encoder.checkpoint import PearlConfig
from training.augment.draw import open_augmenter
from training.batches import BatchDataset, BatchMaker, EpochSampler, NegativeTable, Shard
from training.examples.example import Example, count_labels, entity_types_of
from training.examples.files import index_by_name, read_negatives, read_training_files
from training.finetune.objective import PairObjective
from training.finetune.request import FitConfig, FitRequest, FitResult
from training.networks.checkpoints import BaseModel, find_device, open_base_model, write_network
from training.options import TrainingEvents, as_paths, refuse_overwriting
from training.training_loop import TrainingLoop, local_device, process_group, shard_of_environment, wait_for_all


def fit_model(request: FitRequest, *, events: TrainingEvents | None = None) -> FitResult:
    """Fine-tune an encoder on phrases; the same call resumes a run that was interrupted.

    Args:
        request: What to train on, how, and where to write.
        events: Gets `examples_read` and `types_at_risk`.

    Raises:
        OptionError: If arguments contradict each other, there is nothing to learn from, or `out` is an input.
        InputError: If an input cannot be read, or has too many bad rows.
        ModelError: If the base model cannot be loaded.
        TrainingError: If `out` holds the state of another run, or the loss diverges.
    """
    request.check()
    refuse_overwriting(request.out, request.base_model, *as_paths(request.phrases), request.character_encoder)
    events = events or TrainingEvents()
    out, device = Path(request.out), local_device(find_device(request.device))
    base = open_base_model(
        str(request.base_model),
        name=request.name or out.name,
        character=None if request.character_encoder is None else Path(request.character_encoder),
        pooling=request.pooling,
        prefix=request.prefix,
        seed=request.seed,
    )
    examples = read_training_files(
        request.phrases, request.aliases, min_count=request.min_count, max_errors=request.max_errors, events=events
    )
    plain = []
    if request.distil:
        distilled = read_training_files(request.distil, min_count=1, max_errors=request.max_errors, events=events)
        plain = [example.name for example in distilled]
    n_processes = shard_of_environment().world_size
    pairs = n_processes * request.n_pairs(world_size=n_processes)
    steps = request.steps or max(1, math.ceil(request.epochs * len(examples) / pairs))
    config = request.fit_config(steps=steps, device=str(device))
    if base.has_trained_head and config.type_weight > 0:
        # A head that learns only some types will forget the others.
        known, taught = entity_types_of(base.config.label_counts), entity_types_of(count_labels(examples))
        if taught and known - taught:
            events.types_at_risk(len(known & taught), len(known))
    with process_group(device) as shard:
        maker = _make_batches(request, examples, plain, shard)
        base.network.to(device)
        dataset = BatchDataset(maker, base.tokenizer, config.max_tokens, config.micro_batch, base.config.prefix)
        done = TrainingLoop(
            name="fit",
            objective=PairObjective(base.network, dataset, config),
            steps=config.steps,
            folder=out / "training",
            resume=not request.restart,
            save_every=config.save_every,
            save_seconds=config.save_seconds,
            shard=shard,
        ).run()
        if shard.rank == 0:
            described = _describe(base, examples, config, maker)
            write_network(out, base.network.cpu(), described, transformer=base.folder)
        wait_for_all()
    return FitResult(out, done, len(examples), shard.rank == 0)


def _make_batches(request: FitRequest, examples: list[Example], plain: list[str], shard: Shard) -> BatchMaker:
    if request.paper_settings:
        # At most one phrase type, and no other names.
        examples = [replace(one, others=(), allowed=one.allowed[:1]) for one in examples]
    negatives = None
    if request.hard_negatives is not None:
        rows = read_negatives(Path(request.hard_negatives), ReadReport(max_errors=request.max_errors))
        negatives = NegativeTable(rows, known=index_by_name(examples))
    augment = open_augmenter(
        [path for path in as_paths(request.phrases) if path.is_dir()],
        wordnet=None if request.wordnet is None else Path(request.wordnet),
        with_aliases=not request.paper_settings,
    )
    return BatchMaker(
        EpochSampler(examples, request.seed),
        n_pairs=request.n_pairs(world_size=shard.world_size),
        seed=request.seed,
        augment=augment,
        negatives=negatives,
        n_negatives=request.n_negatives,
        negatives_as_pairs=request.paper_settings,
        plain=plain,
        shard=shard,
    )


def _describe(base: BaseModel, examples: list[Example], config: FitConfig, maker: BatchMaker) -> PearlConfig:
    """pearl.json of the fine-tuned network, with the record of this run."""
    record = {**base.config.training, "fit": {**config.model_dump(), **maker.identity(), "examples": len(examples)}}
    counts = base.config.label_counts
    if config.type_weight > 0:
        # The head has not lost what it learnt before this run; a plain encoder's counts are all 0.
        counts = tuple(old + new for old, new in zip(counts, count_labels(examples), strict=True))
    return base.config.model_copy(update={"label_counts": counts, "training": record})
