"""`pearl-qdrant train fit`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from pearl_qdrant.cli.common.extras import needs_extra
from pearl_qdrant.cli.common.options import device_option
from pearl_qdrant.cli.common.terminal import echo
from pearl_qdrant.cli.train.inputs import (
    aliases_option,
    max_errors_option,
    min_count_option,
    phrases_option,
    read_material,
    refuse_overwriting,
)

if TYPE_CHECKING:
    from training.augment.draw import Augmenter
    from training.examples.sources import Example
    from training.finetune.objective import Teacher
    from training.finetune.trainer import Evaluate
    from training.networks.base_network import Base

_PATH = click.Path(path_type=Path)
_RATE = click.FloatRange(0, min_open=True)


@click.command()
@click.option("--base", "model", required=True, metavar="DIR|HUB", help="Encoder to start from: folder or hub id.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), required=True, help="Checkpoint to write.")
@phrases_option
@aliases_option
@click.option("--hard-negatives", type=_PATH, metavar="F", help="As `train negatives` writes them.")
@click.option("--paraphrases", type=_PATH, multiple=True, metavar="F", help="phrase_aug.jsonl; may be repeated.")
@click.option("--token-variants", type=_PATH, multiple=True, metavar="F", help="token_aug.jsonl; may be repeated.")
@click.option("--wordnet", type=_PATH, metavar="DIR", help="WordNet's dict folder, for synonyms.")
@click.option("--character-encoder", type=_PATH, metavar="DIR", help="As `train love` writes it.")
@click.option("--faithful", is_flag=True, help="The paper to the letter: see below.")
@click.option("--epochs", type=_RATE, default=2.0, show_default=True, help="How often each phrase is an anchor.")
@click.option("--steps", type=click.IntRange(1), help="Instead of --epochs.")
@click.option("--batch", "views", type=click.IntRange(4), default=512, show_default=True,
              help="Phrases encoded a step, variants and hard negatives included, on all processes.")  # fmt: skip
@click.option("--negatives", "n_negatives", type=click.IntRange(0), default=2, show_default=True,
              help="Hard negatives drawn for each anchor.")  # fmt: skip
@click.option("--run", type=click.IntRange(1), default=1, show_default=True,
              help="Alphabetical neighbours drawn together: hard negatives for nothing.")  # fmt: skip
@click.option("--learning-rate", type=_RATE, default=3e-5, show_default=True, help="Peak, of the phrase encoder.")
@click.option("--schedule", type=click.Choice(["exponential", "cosine"]), default="exponential", show_default=True,
              help="x 0.98 every 2,000 steps, or a cosine to zero.")  # fmt: skip
@click.option("--temperature", type=_RATE, default=0.07, show_default=True, help="Of the contrastive loss.")
@click.option("--objective", type=click.Choice(["nt-xent", "multi-similarity"]), default="nt-xent", show_default=True,
              help="The paper's contrastive loss, or SapBERT's.")  # fmt: skip
@click.option("--type-weight", type=click.FloatRange(0), default=1.0, show_default=True, help="Of the type loss.")
@click.option("--mask", type=click.Choice(["label", "none"]), default="label", show_default=True,
              help="label: names of one entity or string are no negatives of each other.")  # fmt: skip
@click.option("--teacher", metavar="M", help="Encoder that masks what it finds closer than the pair (GIST).")
@click.option("--distil", type=_PATH, multiple=True, metavar="PATH",
              help="Phrases, as for --phrases, that shall stay where the base has them; may be repeated.")  # fmt: skip
@click.option("--distil-weight", type=_RATE, default=2.0, show_default=True, help="Of these phrases' distance.")
@click.option("--distil-misspelt", type=click.FloatRange(0, 1), default=0.0, show_default=True,
              help="Share of them seen with one character edited, to stay where the right spelling is.")  # fmt: skip
@click.option("--dropout", is_flag=True, help="Leave the encoder's dropout on.")
@click.option("--train-words", is_flag=True, help="Train the word embeddings too.")
@click.option("--cache-gradients", is_flag=True, help="Large batches in little memory, for one more forward pass.")
@click.option("--micro-batch", type=click.IntRange(1), default=64, show_default=True, help="Phrases a forward pass.")
@click.option("--max-tokens", type=click.IntRange(3), default=24, show_default=True, help="Longer phrases are cut.")
@click.option("--precision", type=click.Choice(["auto", "bf16", "fp32"]), default="auto", show_default=True,
              help="auto: bf16 where the device computes in it.")  # fmt: skip
@click.option("--workers", type=click.IntRange(0), default=0, show_default=True, help="Processes that make batches.")
@click.option("--save-every", type=click.IntRange(1), default=500, show_default=True,
              help="Steps between two states to go on from; one is written every ten minutes too.")  # fmt: skip
@click.option("--evaluate", "data", metavar="DIR|hub", help="Evaluation sets to measure on between the steps.")
@click.option("--evaluate-task", "tasks", multiple=True, metavar="T", help="Only this task; may be repeated.")
@click.option("--evaluate-every", type=click.IntRange(1), default=1000, show_default=True, help="Steps between them.")
@click.option("--tensorboard", is_flag=True, help="Write event files too.")
@click.option("--name", metavar="NAME", help="Of the model.  [default: the folder's]")
@click.option("--pooling", type=click.Choice(["mean", "cls"]), help="In place of what the base says.")
@click.option("--prefix", metavar="TEXT", help="Before each phrase, in place of the base's own.")
@click.option("--seed", type=int, default=0, show_default=True, help="Decides everything.")
@click.option("--restart", is_flag=True, help="Do not go on from what OUT holds.")
@min_count_option
@max_errors_option
@device_option
def fit(**options: Any) -> None:
    """Fine-tune an encoder on phrases: contrastive learning and phrase type classification.

    The same command goes on after a kill. State, log.csv and curves.png lie in OUT/training. --faithful is the paper:
    Adam at 3e-5 for all parameters, temperature 0.07, dropout, nothing masked, no aliases, each hard negative with a
    variant of its own. On several GPUs: torchrun --nproc-per-node 4 -m pearl_qdrant train fit ...

    \b
    pearl-qdrant train fit --base all-MiniLM-L6-v2/ --phrases corpus --out fitted
    pearl-qdrant train fit --base fitted --aliases umls.tsv --objective multi-similarity --out refreshed
    pearl-qdrant train fit --base intfloat/e5-small --phrases corpus --faithful --hard-negatives hn.txt --out pearl
    """
    _check(options)
    with needs_extra("train"):
        _run(**options)


def _check(options: dict[str, Any]) -> None:
    """Refuse options that contradict each other, before anything is read."""
    refuse_overwriting(options["out"], options["model"], *options["phrases"], options["character_encoder"])
    context = click.get_current_context()
    given = {name for name in options if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE}
    fixed = given & {
        "learning_rate",
        "schedule",
        "temperature",
        "objective",
        "type_weight",
        "mask",
        "teacher",
        "distil",
        "distil_weight",
        "distil_misspelt",
        "run",
    }
    if options["faithful"] and fixed:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in sorted(fixed))
        raise click.UsageError(f"--faithful fixes {flags}: leave it out, or leave --faithful out.")
    if options["tasks"] and not options["data"]:
        raise click.UsageError("--evaluate-task needs --evaluate.")
    if (of_distil := given & {"distil_weight", "distil_misspelt"}) and not options["distil"]:
        raise click.UsageError(f"--{min(of_distil).replace('_', '-')} needs --distil.")


def _run(
    *,
    model: str,
    out: Path,
    phrases: tuple[Path, ...],
    aliases: tuple[Path, ...],
    hard_negatives: Path | None,
    paraphrases: tuple[Path, ...],
    token_variants: tuple[Path, ...],
    wordnet: Path | None,
    character_encoder: Path | None,
    faithful: bool,
    epochs: float,
    steps: int | None,
    views: int,
    n_negatives: int,
    run: int,
    learning_rate: float,
    schedule: Literal["exponential", "cosine"],
    temperature: float,
    objective: Literal["nt-xent", "multi-similarity"],
    type_weight: float,
    mask: Literal["label", "none"],
    teacher: str | None,
    distil: tuple[Path, ...],
    distil_weight: float,
    distil_misspelt: float,
    dropout: bool,
    train_words: bool,
    cache_gradients: bool,
    micro_batch: int,
    max_tokens: int,
    precision: Literal["auto", "bf16", "fp32"],
    workers: int,
    save_every: int,
    data: str | None,
    tasks: tuple[str, ...],
    evaluate_every: int,
    tensorboard: bool,
    name: str | None,
    pooling: str | None,
    prefix: str | None,
    seed: int,
    restart: bool,
    min_count: int,
    max_errors: int,
    device: str,
) -> None:
    from dataclasses import replace

    from ingest.io.report import ReadReport
    from training.data.training_files import read_negatives
    from training.finetune.config import FitConfig, paper_config
    from training.finetune.distributed import local_device, shard_of_environment
    from training.finetune.run import DataOptions, plan_steps, run_fit
    from training.networks.base_network import find_device, open_base

    place = local_device(find_device(device))
    # A teacher whose weights no GPU can take runs on the CPU, unless a GPU was asked for.
    teacher_device = device if device == "auto" else str(place)
    base = open_base(
        model, name=name or out.name, character=character_encoder, pooling=pooling, prefix=prefix, seed=seed
    )
    examples = read_material(phrases, aliases, min_count=min_count, max_errors=max_errors)
    plain = (
        [example.name for example in read_material(distil, (), min_count=1, max_errors=max_errors)] if distil else []
    )
    options = DataOptions(views, epochs, n_negatives, run, faithful, misspelt_plain=distil_misspelt, seed=seed)
    n_steps = steps or plan_steps(
        len(examples),
        options,
        has_negatives=hard_negatives is not None,
        world_size=shard_of_environment().world_size,
    )
    config = FitConfig(
        steps=n_steps,
        learning_rate=learning_rate,
        schedule=schedule,
        temperature=temperature,
        objective=objective,
        type_weight=type_weight,
        mask=mask,
        distil_weight=distil_weight,
        dropout=dropout,
        freeze_words=not train_words,
    )
    config = replace(
        paper_config(steps=n_steps) if faithful else config,
        cache_gradients=cache_gradients,
        micro_batch=micro_batch,
        max_tokens=max_tokens,
        precision=precision,
        workers=workers,
        save_every=save_every,
        evaluate_every=evaluate_every if data else 0,
        seed=seed,
    )

    if base.has_trained_head and config.type_weight > 0:
        _warn_of_few_types(base, examples)

    def rows() -> Iterator[tuple[str, list[str]]]:
        assert hard_negatives is not None
        yield from read_negatives(hard_negatives, ReadReport(max_errors=max_errors))

    wrote = run_fit(
        base,
        examples,
        config,
        options,
        out,
        vary=_augmenter(phrases, paraphrases, token_variants, wordnet, with_aliases=not faithful),
        negatives=rows if hard_negatives is not None else None,
        device=place,
        resume=not restart,
        teacher=None if teacher is None else _teacher(teacher, teacher_device),
        plain=plain,
        distil_from=_teacher(model, teacher_device) if plain else None,
        evaluate=None if data is None else _evaluator(data, tasks, base),
        tensorboard=tensorboard,
    )
    if wrote:
        echo(f"{out}: {n_steps:,} steps; curves in {out / 'training'}. Next: train average", err=True)


def _warn_of_few_types(base: Base, examples: list[Example]) -> None:
    """Say on stderr that a type head which learns some types alone forgets the others."""
    from training.finetune.run import count_labels, entity_types_of

    known, taught = entity_types_of(base.config.label_counts), entity_types_of(count_labels(examples))
    if taught and known - taught:
        echo(
            f"These names have {len(known & taught)} of the {len(known)} entity types that the type head knows: it "
            f"will forget the others. Keep it as it is with --type-weight 0, or add names of the other types",
            err=True,
        )


def _augmenter(
    phrases: tuple[Path, ...],
    paraphrases: tuple[Path, ...],
    token_variants: tuple[Path, ...],
    wordnet: Path | None,
    *,
    with_aliases: bool,
) -> Augmenter:
    """The paper's draw, from the files given and those that lie in corpus folders."""
    from training.augment.sources import AugmentationSources
    from training.corpus.files import ENTITIES

    folders = [AugmentationSources.of_corpus(path) for path in phrases if path.is_dir()]
    return AugmentationSources(
        wordnet=wordnet,
        neighbours=next((found.neighbours for found in folders if found.neighbours), None),
        token_variants=(*token_variants, *(path for found in folders for path in found.token_variants)),
        paraphrases=(
            *paraphrases,
            *(p for found in folders for p in found.paraphrases if with_aliases or p.name != ENTITIES),
        ),
    ).open()


def _teacher(model: str, device: str) -> Teacher:
    from pearl_qdrant.encoder.loading import load_encoder
    from training.finetune.run import as_teacher

    return as_teacher(load_encoder(model, device=device))


def _evaluator(place: str, names: tuple[str, ...], base: Base) -> Evaluate:
    """Scores of the evaluation's tasks, one seed, without baselines."""
    from training.evaluation.datasets.data import FolderData
    from training.evaluation.datasets.hub import HubData
    from training.evaluation.methods import EncoderMethod
    from training.evaluation.registry import find_tasks
    from training.evaluation.run import evaluate
    from training.evaluation.task import EvaluationOptions
    from training.finetune.run import live_encoder

    try:
        tasks = find_tasks(names)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--evaluate-task") from error
    data = HubData() if place == "hub" else FolderData(Path(place))

    def scores(step: int, network: Any) -> dict[str, float]:
        method = EncoderMethod(live_encoder(network, base), name=base.config.name)
        report = evaluate(data, method, [], tasks, EvaluationOptions(n_seeds=1))
        return {result.task.name: result.outcomes[method.name].value for result in report.results}

    return scores
