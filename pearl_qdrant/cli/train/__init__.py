"""`pearl-qdrant train`: the stages of training, one command per file."""

from __future__ import annotations

import click

from pearl_qdrant.cli.train.average import average
from pearl_qdrant.cli.train.corpus import corpus
from pearl_qdrant.cli.train.export import export
from pearl_qdrant.cli.train.fit import fit
from pearl_qdrant.cli.train.head import head
from pearl_qdrant.cli.train.love import love
from pearl_qdrant.cli.train.negatives import negatives
from pearl_qdrant.cli.train.paraphrase import paraphrase, synonyms


@click.group()
def train() -> None:
    """Refresh the encoder: phrases, character encoder, fine-tuning, type head, averaging, export.

    The stages need the extra `train`; without it each command prints how to install it.
    """


for _command in (corpus, paraphrase, synonyms, negatives, love, fit, average, head, export):
    train.add_command(_command)
