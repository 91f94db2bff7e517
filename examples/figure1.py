"""Figure 1 of the PEARL paper with this model: cosines of five names to "The New York Times".

The first three are its aliases; New York Post and New York are other entities.
"""

from __future__ import annotations

import click

from pearl_qdrant.encoder.loading import load_encoder
from pearl_qdrant.encoder.type_head import predict_types

MENTION = "The New York Times"
NAMES = ("nytimes.com", "NYTimes", "New-York Daily Times", "New York Post", "New York")


@click.command()
@click.option("--model", default="pearl-mini-en")
def main(model: str) -> None:
    """Print the names by cosine, with the phrase type that the head predicts."""
    encoded = load_encoder(model, device="cpu").encode([MENTION, *NAMES])
    cosines = encoded.vectors[1:] @ encoded.vectors[0]
    kinds = [""] * len(NAMES)
    if encoded.type_probabilities is not None:
        kinds = predict_types(encoded.type_probabilities).phrase_types[1:]
    for rank, i in enumerate((-cosines).argsort().tolist(), start=1):
        click.echo(f"{rank}  {cosines[i]:.4f}  {NAMES[i]:<22} {kinds[i]}")


if __name__ == "__main__":
    main()
