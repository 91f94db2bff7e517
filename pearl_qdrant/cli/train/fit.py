"""What is trained: `train love`, `fit`, `ulr` and `refresh`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from pearl_qdrant.cli.common.options import json_option
from pearl_qdrant.cli.common.terminal import echo, echo_json
from pearl_qdrant.cli.train.options import FOLDER, PATH, base_model_option, options_of, taken, training_stage
from training.finetune.request import FitRequest
from training.options import STAGES, CharacterWidths, LoveConfig, RefreshEvents, RefreshRequest, RefreshResult
from training.ulr.request import UlrRequest


@click.command()
@click.argument("base_model", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.argument("out", type=FOLDER)
@click.option("--vectors", type=click.Path(path_type=Path, exists=True, dir_okay=False),
              help="Word vectors to mimic: a .vec file of FastText; by default BASE_MODEL's.")  # fmt: skip
@click.option("--max-words", type=click.IntRange(2), help="Use at most this many words, the first ones.")
@options_of(CharacterWidths, without=("embedding_dim", "word_dim", "wordpieces"))
@options_of(LoveConfig, without=("batch", "learning_rate", "decay", "temperature", "typo_share", "hard_negatives"))
@click.option("--restart", is_flag=True, help="Start over, even if OUT holds the state of a run.")
@json_option
def love(base_model: Path, out: Path, restart: bool, as_json: bool, **others: Any) -> None:
    """Pre-train a character encoder for the encoder in folder BASE_MODEL, by mimicry of word vectors (LOVE).

    The same command resumes a run that was interrupted. Give OUT to `pearl-qdrant train fit` as --character-encoder.

    \b
    pearl-qdrant train love all-MiniLM-L6-v2/ love/
    pearl-qdrant train love e5-small/ love/ --vectors wiki-news-300d-1M.vec --max-words 200000
    """
    with training_stage():
        from pearl_qdrant import pretrain_character_encoder

        widths, config = taken(CharacterWidths, others), taken(LoveConfig, others)
        mimicry = pretrain_character_encoder(
            base_model, out, widths=widths, config=config, resume=not restart, **others
        )
    if as_json:
        echo_json({"character_encoder": str(out), **asdict(mimicry)})
    else:
        echo(f"{mimicry}")


_RARE_OF_FIT = (
    "n_negatives train_words micro_batch name pooling prefix min_count max_errors mask distil_weight dropout "
    "max_tokens precision save_every"
)
"""Arguments of `FitRequest` that are Python's alone."""

_fit_options = options_of(FitRequest, without=("base_model", *_RARE_OF_FIT.split()), flags={"batch_size": "--batch"})


@click.command()
@base_model_option
@_fit_options
def fit(**options: Any) -> None:
    """Fine-tune an encoder on phrases: contrastive learning and phrase type classification.

    The same command resumes a run that was interrupted. State and log.csv are written to OUT/training.
    --paper-settings trains as in the paper: Adam at 3e-5 for all parameters, temperature 0.07, dropout, no masking, no
    aliases, each hard negative with a variant of its own. On several GPUs: torchrun --nproc-per-node 4 -m pearl_qdrant
    train fit ...

    \b
    pearl-qdrant train fit --base-model all-MiniLM-L6-v2/ --phrases corpus --out fitted
    pearl-qdrant train fit --base-model fitted --aliases umls.tsv --schedule cosine --out refreshed
    pearl-qdrant train fit --base-model intfloat/e5-small --phrases corpus --paper-settings --out pearl
    """
    with training_stage() as output:
        from pearl_qdrant import fit_model

        result = fit_model(FitRequest(**options), events=output)
    if result.wrote:
        out = result.checkpoint
        echo(f"{out}: {result.steps:,} steps; log in {out / 'training'}. Next: train average", err=True)


_RARE_OF_ULR = (
    "max_words sequences max_errors warmup schedule head_learning_rate mask_share n_scored pooling micro_batch "
    "precision save_every head_steps"
)
"""Arguments of `UlrRequest` that are Python's alone."""

_ulr_options = options_of(
    UlrRequest, without=("base", "out", *_RARE_OF_ULR.split()), flags={"texts": "--text", "batch_size": "--batch"}
)


@click.command()
@click.argument("base", metavar="BASE")
@click.argument("out", type=FOLDER)
@_ulr_options
@json_option
def ulr(as_json: bool, **options: Any) -> None:
    """Train encoder BASE so that the vectors of an n-gram and of the rest add up to the sequence's (ULR).

    BASE is a folder or a hub id of kind BERT, ALBERT, ELECTRA, RoBERTa, MPNet or DistilBERT. OUT is a plain encoder,
    and a --base-model for `train fit`. The same command resumes a run that was interrupted. State and log.csv
    are written to OUT/training.

    \b
    pearl-qdrant train ulr all-MiniLM-L6-v2/ ulr/ --text articles.jsonl.gz --steps 2000
    pearl-qdrant train ulr bert-base/ ulr/ --ngrams ngrams/
    """
    with training_stage() as output:
        from pearl_qdrant import train_ulr

        result = train_ulr(UlrRequest(**options), events=output)
    if as_json:
        echo_json({**asdict(result), "encoder": str(result.encoder)})
        return
    head = f", the first {result.head_steps:,} of the MLM head alone" if result.head_steps else ""
    echo(f"{result.encoder}: {result.steps:,} steps{head}; log in {result.encoder / 'training'}", err=True)


class _Output(RefreshEvents):
    """Says each stage on a line, with its number."""

    def stage(self, name: str, detail: str = "") -> None:
        """Print it."""
        echo(f"{STAGES.index(name) + 1} of {len(STAGES)}: {name}{f' ({detail})' if detail else ''}", err=True)


@click.command()
@click.argument("base", nargs=-1, required=True, type=PATH)
@click.option("--out", type=FOLDER, required=True, help="Folder of the exported model.")
@options_of(RefreshRequest, without=("base", "out", "batch_size", "work", "name", "seed", "max_errors"))
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

        result = refresh_model(RefreshRequest(base=base, **options), events=_Output())
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
