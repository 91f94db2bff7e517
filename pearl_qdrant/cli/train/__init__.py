"""`pearl-qdrant train`: the stages of training, each a command in a file of its own."""

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

    Needs the extra `train`; without it each command says how to install it.
    """


train.add_command(corpus)
train.add_command(paraphrase)
train.add_command(synonyms)
train.add_command(love)
train.add_command(average)
train.add_command(export)
train.add_command(negatives)
train.add_command(fit)
train.add_command(head)
