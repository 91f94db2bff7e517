"""`pearl-qdrant train fit`."""

from __future__ import annotations

from typing import Any

import click

from pearl_qdrant.cli.common.options import device_option
from pearl_qdrant.cli.common.terminal import echo
from pearl_qdrant.cli.train.options import (
    FOLDER,
    PATH,
    RATE,
    SAMPLING,
    aliases_option,
    base_model_option,
    max_errors_option,
    min_count_option,
    option_of,
    phrases_option,
    sampling_of,
)
from pearl_qdrant.cli.train.output import training_stage
from training.finetune.request import FitRequest

_option = option_of(FitRequest)


@click.command()
@base_model_option
@_option("--out", "out", type=FOLDER, help="Checkpoint to write.")
@phrases_option
@aliases_option
@_option("--hard-negatives", "hard_negatives", type=PATH, metavar="F", help="File that `train negatives` wrote.")
@_option("--paraphrases", "paraphrases", type=PATH, multiple=True, metavar="F",
         help="phrase_aug.jsonl; may be repeated.")  # fmt: skip
@_option("--token-variants", "token_variants", type=PATH, multiple=True, metavar="F",
         help="token_aug.jsonl; may be repeated.")  # fmt: skip
@_option("--wordnet", "wordnet", type=PATH, metavar="DIR", help="WordNet's dict folder, for synonyms.")
@_option("--character-encoder", "character_encoder", type=PATH, metavar="DIR", help="Folder that `train love` wrote.")
@_option("--paper-settings", "paper_settings", is_flag=True,
         help="Train as in the paper: see above.")  # fmt: skip
@_option("--epochs", "epochs", type=RATE, help="How often each phrase is an anchor.")
@_option("--steps", "steps", type=click.IntRange(1), help="Optimizer steps, instead of --epochs.")
@_option("--batch", "batch_size", type=click.IntRange(4),
         help="Phrases per step on all processes, variants and hard negatives included.")  # fmt: skip
@_option("--negatives", "n_negatives", type=click.IntRange(0), help="Hard negatives drawn for each anchor.")
@_option("--neighbours", "neighbours", type=click.IntRange(1),
         help="Alphabetical neighbours drawn together: hard negatives at no cost.")  # fmt: skip
@_option("--learning-rate", "learning_rate", type=RATE, help="Peak learning rate of the phrase encoder.")
@_option("--schedule", "schedule", type=click.Choice(["exponential", "cosine"]),
         help="x 0.98 every 2,000 steps, or a cosine to zero.")  # fmt: skip
@_option("--temperature", "temperature", type=RATE, help="Temperature of the contrastive loss.")
@_option("--objective", "objective", type=click.Choice(["nt-xent", "multi-similarity"]),
         help="The paper's contrastive loss, or SapBERT's.")  # fmt: skip
@_option("--type-weight", "type_weight", type=click.FloatRange(0), help="Weight of the type loss.")
@_option("--mask", "mask", type=click.Choice(["label", "none"]),
         help="label: names of one entity or string are not negatives of each other.")  # fmt: skip
@_option("--teacher", "teacher", metavar="M", help="Encoder that masks phrases closer than the pair (GIST).")
@_option("--distil", "distil", type=PATH, multiple=True, metavar="PATH",
         help="Phrases, as for --phrases, that keep their vectors of the base model; may be repeated.")  # fmt: skip
@_option("--distil-weight", "distil_weight", type=RATE, help="Weight of the distance of these phrases.")
@_option("--distil-misspelt", "distil_misspelt", type=click.FloatRange(0, 1),
         help="Share of them seen with one character edited; the target is the right spelling.")  # fmt: skip
@_option("--misad", "misad_weight", type=click.FloatRange(0), metavar="W",
         help="Weight of ULR's MiSAD on --text: an n-gram and the rest add up to the sequence.")  # fmt: skip
@_option("--mlm", "mlm_weight", type=click.FloatRange(0), metavar="W",
         help="Weight of masked language modelling on --text.")  # fmt: skip
@_option("--text", "texts", type=PATH, multiple=True, metavar="F",
         help="Texts of --misad and --mlm: plain text or JSON Lines; may be repeated. Spans are random.")  # fmt: skip
@_option("--ngrams", "ngrams", type=PATH, metavar="DIR", help="Folder that `train ngrams` wrote, in place of --text.")
@_option("--sampling", "sampling", type=click.Choice(SAMPLING),
         help="How MiSAD chooses an n-gram, as for `train ulr`.")  # fmt: skip
@_option("--text-batch", "text_batch", type=click.IntRange(1), help="Sequences of text per step.")
@_option("--text-tokens", "text_tokens", type=click.IntRange(4), help="Longer sequences are truncated.")
@_option("--renormalise", "renormalise", is_flag=True, help="MiSAD scales the sum to unit length.")
@_option("--dropout", "dropout", is_flag=True, help="Leave the encoder's dropout on.")
@_option("--train-words", "train_words", is_flag=True, help="Train the word embeddings too.")
@_option("--cache-gradients", "cache_gradients", is_flag=True,
         help="Large batches in little memory, for one more forward pass.")  # fmt: skip
@_option("--micro-batch", "micro_batch", type=click.IntRange(1),
         help="Phrases per forward pass; by default 64 on a CPU and the whole batch on a GPU.")  # fmt: skip
@_option("--max-tokens", "max_tokens", type=click.IntRange(3), help="Longer phrases are truncated.")
@_option("--precision", "precision", type=click.Choice(["auto", "bf16", "fp32"]),
         help="auto: bf16 where the device computes in it.")  # fmt: skip
@_option("--workers", "workers", type=click.IntRange(0), help="Processes that make batches.")
@_option("--save-every", "save_every", type=click.IntRange(1),
         help="Steps between two saved states; one is written every five minutes too.")  # fmt: skip
@_option("--evaluate", "evaluation_data", metavar="DIR|hub", help="Evaluation sets to measure between the steps.")
@_option("--evaluate-task", "evaluation_tasks", multiple=True, metavar="T", help="Only this task; may be repeated.")
@_option("--evaluate-every", "evaluate_every", type=click.IntRange(1), help="Steps between evaluations.")
@_option("--tensorboard", "tensorboard", is_flag=True, help="Write TensorBoard event files too.")
@_option("--name", "name", metavar="NAME", help="Name of the model.  [default: that of the folder]")
@_option("--pooling", "pooling", type=click.Choice(["mean", "cls"]), help="Instead of the base model's own.")
@_option("--prefix", "prefix", metavar="TEXT", help="Text before each phrase, instead of the base model's own.")
@_option("--seed", "seed", type=int, help="Determines everything.")
@_option("--restart", "restart", is_flag=True, help="Start over, even if OUT holds the state of a run.")
@min_count_option
@max_errors_option
@device_option
def fit(sampling: str | None, **options: Any) -> None:
    """Fine-tune an encoder on phrases: contrastive learning and phrase type classification.

    The same command resumes a run that was interrupted. State, log.csv and curves.png are written to OUT/training.
    --paper-settings trains as in the paper: Adam at 3e-5 for all parameters, temperature 0.07, dropout, no masking, no
    aliases, each hard negative with a variant of its own. On several GPUs: torchrun --nproc-per-node 4 -m pearl_qdrant
    train fit ...

    \b
    pearl-qdrant train fit --base-model all-MiniLM-L6-v2/ --phrases corpus --out fitted
    pearl-qdrant train fit --base-model fitted --aliases umls.tsv --objective multi-similarity --out refreshed
    pearl-qdrant train fit --base-model intfloat/e5-small --phrases corpus --paper-settings --out pearl
    """
    source_of = click.get_current_context().get_parameter_source
    given = {name for name in (*options, "sampling") if source_of(name) is click.core.ParameterSource.COMMANDLINE}
    with training_stage() as output:
        from pearl_qdrant import fit_model

        chosen: Any = sampling_of(sampling)
        result = fit_model(FitRequest(**options, sampling=chosen), given=given, events=output)
    if result.wrote:
        out = result.checkpoint
        echo(f"{out}: {result.steps:,} steps; curves in {out / 'training'}. Next: train average", err=True)
