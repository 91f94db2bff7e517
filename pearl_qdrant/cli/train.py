"""`pearl-qdrant train`: the stages of training, each a command in a file of its own."""

from __future__ import annotations

import click


@click.group()
def train() -> None:
    """Refresh the encoder: phrases, character encoder, fine-tuning, type head, averaging, export.

    Needs the extra: pip install 'pearl-qdrant[train]'
    """
