r"""The recipe of the shipped encoder `pearl-mini`: it learns what it knew and what its teacher knows, and names.

    python runs/encoder_model.py prepare --data FOLDER --wordnet FOLDER --dictionaries FOLDER --out names.jsonl
    python runs/encoder_model.py teacher E5 --before BEFORE --out TEACHER
    python runs/encoder_model.py train BEFORE names.jsonl --teacher TEACHER/onnx --steps 2040 --out RUN
    python runs/encoder_model.py finish RUN/network --data FOLDER --wordnet FOLDER --out MODEL

E5 is a folder of multilingual-e5-small, BEFORE the encoder that shipped before (of commit 48cab483, whose
`runs/joint_student.py` made it), as `pearl-qdrant models export pearl-mini BEFORE` writes it. The word
embeddings stay as they are: the judge of two names reads them too. `multilingual/teaching.py` says how it learns,
docs/experiments/multilingual.md has the figures. About two hours on one core; a run that was stopped goes on from its
last checkpoint.

    names.jsonl   {"source": "bio", "names": [...], "near": [...]}: an entity, with names of others that are near
                  {"source": "text", "names": ["a phrase"]}: what is distilled alone
"""

from __future__ import annotations

import json
import logging
import random
import re
import shutil
import tempfile
from pathlib import Path

import click
from judge_examples import all_entities, held_out, held_out_aliases, pools, with_near
from mini_en.data import plain_phrases
from multilingual.teaching import WORDS, Names, teach
from recipe_tables import read_texts

from pearl_qdrant.encoder.batching import open_tokenizer
from pearl_qdrant.encoder.loading import load_encoder
from pearl_qdrant.lexical.ngrams import fold_name
from training.export.export_checkpoint import export_checkpoint
from training.networks.checkpoints import open_base_model, read_network, write_network

N_PHRASES, SENTENCES = 140_000, 3
"""Phrases of plain text, and sentences of each article."""
MOST = {"dict": 40_000}
"""Words of each dictionary, at most; of other sources all entities."""
CARD = Path(__file__).parent / "multilingual" / "pearl_mini_card.md"

_log = logging.getLogger("encoder_model")


@click.group()
def main() -> None:
    """Prepare, start, train, or finish."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")


path_option = click.Path(path_type=Path, exists=True)


@main.command()
@click.option("--data", type=path_option, required=True)
@click.option("--wordnet", type=path_option, required=True)
@click.option("--dictionaries", type=path_option, required=True, help="FreeDict for dictd: /usr/share/dictd.")
@click.option("--out", type=click.Path(path_type=Path), required=True)
def prepare(data: Path, wordnet: Path, dictionaries: Path, out: Path) -> None:
    """Write the names to learn; none that a measured set asks, and none of an entity that is held out."""
    rng, encoder = random.Random(3), load_encoder()
    aliases, measured = held_out_aliases(data), held_out(data)
    entities = all_entities(data, wordnet, dictionaries, every_dictionary=True)
    with out.open("w", encoding="utf-8") as file:
        for pool, some in pools(entities, measured, aliases, MOST).items():
            near = {str(row["names"]): row["near"] for row in with_near(some, encoder, rng)}
            for one in some:
                row = {"source": one.source, "names": one.names, "near": near.get(str(one.names), [])}
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
            _log.info("%s: %d entities", pool, len(some))
        texts = [one for one in plain_texts(data, rng) if one.casefold() not in aliases]
        texts = [one for one in texts if fold_name(one) not in measured]
        file.writelines(json.dumps({"source": "text", "names": [one]}, ensure_ascii=False) + "\n" for one in texts)


def plain_texts(data: Path, rng: random.Random) -> list[str]:
    """Phrases of running text, sentences, and parts of them."""
    path = data / "text" / "enwiki_sample.jsonl.gz"
    phrases = sorted(set(plain_phrases(path, rng)))
    found = rng.sample(phrases, min(N_PHRASES, len(phrases)))
    for article in read_texts(path):
        sentences = [one.strip() for one in re.split(r"(?<=[.!?])\s+|\n", article[:8000])]
        sentences = [one for one in sentences if 60 <= len(one) <= 240]
        for sentence in rng.sample(sentences, min(SENTENCES, len(sentences))):
            words = sentence.split()
            n = len(words) if rng.random() < 0.3 else rng.randint(min(3, len(words)), min(20, len(words)))
            first = rng.randrange(len(words) - n + 1)
            found.append(" ".join(words[first : first + n]))
    return found


@main.command()
@click.argument("e5", type=path_option)
@click.option("--before", type=path_option, required=True)
@click.option("--out", type=click.Path(path_type=Path), required=True)
def teacher(e5: Path, before: Path, out: Path) -> None:
    """Write E5 with the pieces of BEFORE, for torch (`torch`) and in 8 bits (`onnx`)."""
    import torch
    from safetensors.torch import load_file, save_file
    from tokenizers import Tokenizer

    given = {name: tensor.float() for name, tensor in load_file(e5 / "model.safetensors").items()}
    given = {name: tensor for name, tensor in given.items() if "pooler" not in name and "position_ids" not in name}
    row_of = Tokenizer.from_file(str(e5 / "tokenizer.json")).get_vocab()
    pieces = sorted(Tokenizer.from_file(str(before / "tokenizer.json")).get_vocab().items(), key=lambda one: one[1])
    given[WORDS] = given[WORDS][torch.tensor([row_of[piece] for piece, _ in pieces])]
    config = json.loads((e5 / "config.json").read_text("utf-8")) | {"vocab_size": len(pieces)}
    with tempfile.TemporaryDirectory() as work:
        plain = Path(work) / "plain"
        shutil.copytree(before, plain, ignore=shutil.ignore_patterns("onnx", "pearl*", "*.md", "NOTICE", "LICENSE*"))
        (plain / "config.json").write_text(json.dumps(config), "utf-8")
        save_file({name: one.contiguous() for name, one in given.items()}, plain / "model.safetensors")
        opened = open_base_model(str(plain), name="e5", prefix="")
        write_network(out / "torch", opened.network, opened.config, transformer=plain)
    click.echo(export_checkpoint(out / "torch", out / "onnx"))


@main.command()
@click.argument("before", type=path_option)
@click.argument("names", type=path_option)
@click.option("--teacher", type=path_option, required=True)
@click.option("--steps", type=int, required=True)
@click.option("--out", type=click.Path(path_type=Path), required=True)
def train(before: Path, names: Path, teacher: Path, steps: int, out: Path) -> None:
    """Train, and write the checkpoint RUN/network."""
    network, config = read_network(before)
    encoders = [load_encoder(str(folder), device="cpu") for folder in (before, teacher)]
    tokenizer = open_tokenizer(before / "tokenizer.json")
    record = teach(network, tokenizer, encoders, Names.read(names), out, steps=steps)
    updated = config.model_copy(update={"training": {"recipe": "runs/encoder_model.py", **record}})
    write_network(out / "network", network, updated, transformer=before)


@main.command()
@click.argument("trained", type=path_option)
@click.option("--data", type=path_option, required=True)
@click.option("--wordnet", type=path_option, required=True)
@click.option("--out", type=click.Path(path_type=Path), required=True)
def finish(trained: Path, data: Path, wordnet: Path, out: Path) -> None:
    """Write the network in 8 bits, the words in 4, with a type head, and the model card."""
    from mini_en.text_head import fit_text_head
    from multilingual.data import read_sources

    click.echo(export_checkpoint(trained, out))
    scores = fit_text_head(out, read_sources(data, wordnet), data)
    percent = {name: f"{100 * value:.1f}" for name, value in scores.items() if name.startswith("type_")}
    (out / "README.md").write_text(CARD.read_text("utf-8").format(**{**scores, **percent}), encoding="utf-8")


if __name__ == "__main__":
    main()
