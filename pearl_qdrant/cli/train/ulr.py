"""`pearl-qdrant train ulr`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from pearl_qdrant.cli.common.options import device_option, json_option
from pearl_qdrant.cli.common.terminal import echo, echo_json
from pearl_qdrant.cli.train.options import FOLDER, PATH, RATE, SAMPLING, max_errors_option, option_of, sampling_of
from pearl_qdrant.cli.train.output import training_stage
from training.ulr.request import UlrRequest

_option = option_of(UlrRequest)


@click.command()
@click.argument("base", metavar="BASE")
@click.argument("out", type=FOLDER)
@_option("--text", "texts", type=PATH, multiple=True, metavar="F",
         help="Plain text or JSON Lines, compressed or not; may be repeated. Spans are random.")  # fmt: skip
@_option("--field", "field", metavar="NAME", help="Field of JSON Lines that holds the text.")
@_option("--ngrams", "ngrams", type=PATH, metavar="DIR",
         help="Folder that `train ngrams` wrote: its sequences and n-grams, in place of --text.")  # fmt: skip
@_option("--sampling", "sampling", type=click.Choice(SAMPLING),
         help="Choose the n-gram that the MLM head predicts worst, any, a random span, or an entity mention.  "
              "[default: lowest-score with --ngrams, otherwise random-span]")  # fmt: skip
@_option("--scored", "n_scored", type=click.IntRange(1), help="n-grams of a sequence that are scored, at most.")
@_option("--cutting", "cutting", type=click.Choice(["sentence", "packed"]),
         help="A sequence of --text is one sentence, or neighbouring ones packed together.")  # fmt: skip
@_option("--max-words", "max_words", type=click.IntRange(3), help="Words of a sequence of --text, at most.")
@_option("--sequences", "sequences", type=click.IntRange(1), help="Use at most this many sequences, drawn at random.")
@_option("--pooling", "pooling", type=click.Choice(["mean", "cls", "max"]),
         help="Instead of the base model's own. With max only sentence-transformers opens OUT.")  # fmt: skip
@_option("--misad-weight", "misad_weight", type=click.FloatRange(0), help="Weight of MiSAD; 0 trains MLM alone.")
@_option("--mlm-weight", "mlm_weight", type=click.FloatRange(0), help="Weight of the MLM loss; 0 trains MiSAD alone.")
@_option("--renormalise", "renormalise", is_flag=True, help="Scale the sum of n-gram and rest to unit length.")
@_option("--hold", "hold", type=click.FloatRange(0),
         help="Hold whole sequences where BASE has them: weight of their square error beside MiSAD, whose target they "
              "are then. Not in the paper.")  # fmt: skip
@_option("--mlm-on-rest", "mlm_on_rest", is_flag=True, help="Mask the rest too, and predict its masked tokens.")
@_option("--mask-share", "mask_share", type=click.FloatRange(0, 1, min_open=True, max_open=True),
         help="Share of the tokens that are masked.")  # fmt: skip
@_option("--epochs", "epochs", type=RATE, help="How often each sequence is seen.")
@_option("--steps", "steps", type=click.IntRange(1), help="Optimizer steps, instead of --epochs.")
@_option("--head-steps", "head_steps", type=click.IntRange(0),
         help="First steps, which train the MLM head alone.  "
              "[default: a tenth if BASE has no head, otherwise 0]")  # fmt: skip
@_option("--head-learning-rate", "head_learning_rate", type=RATE, help="Learning rate of these steps.")
@_option("--batch", "batch_size", type=click.IntRange(1), help="Sequences per step.")
@_option("--learning-rate", "learning_rate", type=RATE, help="Peak learning rate.")
@_option("--warmup", "warmup", type=click.FloatRange(0, 1), help="Share of the steps up to the peak.")
@_option("--schedule", "schedule", type=click.Choice(["linear", "constant"]), help="After the peak: to zero, or none.")
@_option("--dropout/--no-dropout", "dropout", help="Whether the network's dropout is on.")
@_option("--max-tokens", "max_tokens", type=click.IntRange(4), help="Longer sequences are truncated.")
@_option("--micro-batch", "micro_batch", type=click.IntRange(1), help="Sequences per forward pass.")
@_option("--precision", "precision", type=click.Choice(["auto", "bf16", "fp32"]),
         help="auto: bf16 where the device computes in it.")  # fmt: skip
@_option("--save-every", "save_every", type=click.IntRange(1),
         help="Steps between two saved states; one is written every five minutes too.")  # fmt: skip
@_option("--tensorboard", "tensorboard", is_flag=True, help="Write TensorBoard event files too.")
@_option("--seed", "seed", type=int, help="Determines everything.")
@_option("--restart", "restart", is_flag=True, help="Start over, even if OUT holds the state of a run.")
@max_errors_option
@device_option
@json_option
def ulr(as_json: bool, sampling: str | None, **options: Any) -> None:
    """Train encoder BASE so that the vectors of an n-gram and of the rest add up to the sequence's (ULR).

    BASE is a folder or a hub id of kind BERT, ALBERT, ELECTRA, RoBERTa, MPNet or DistilBERT. OUT is a plain encoder,
    and a --base-model for `train fit`. The same command resumes a run that was interrupted. State, log.csv and
    curves.png are written to OUT/training.

    \b
    pearl-qdrant train ulr all-MiniLM-L6-v2/ ulr/ --text articles.jsonl.gz --steps 2000
    pearl-qdrant train ulr bert-base/ ulr/ --ngrams ngrams/
    """
    with training_stage() as output:
        from pearl_qdrant import train_ulr

        chosen: Any = sampling_of(sampling)
        result = train_ulr(UlrRequest(**options, sampling=chosen), events=output)
    if as_json:
        echo_json({**asdict(result), "encoder": str(result.encoder)})
        return
    head = f", the first {result.head_steps:,} of the MLM head alone" if result.head_steps else ""
    echo(f"{result.encoder}: {result.steps:,} steps{head}; curves in {result.encoder / 'training'}", err=True)
