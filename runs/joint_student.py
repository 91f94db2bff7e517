r"""The recipe of the shipped encoder `pearl-mini`: one network that learned the vectors of two, on a GPU.

    python runs/joint_student.py pack --joint TORCH --data FOLDER --sources sources.xz --out PACKED
    python runs/joint_student.py train PACKED --seconds 540 --out RUN
    python runs/joint_student.py finish RUN --packed PACKED --joint TORCH --sources sources.xz --data FOLDER --out MODEL

TORCH is a joint model (`multilingual/joint.py`) of an English encoder and one for many languages, with the folders of
both in it, rebuilt for torch (`pearl-qdrant models export MEMBER TORCH/MEMBER --torch`); both models and their recipes
are in the history of this folder. sources.xz is what `runs/multilingual_model.py prepare` writes. PACKED is small, so
that it can travel to the machine with the GPU, which needs torch, numpy, tokenizers, pydantic and msgspec.
`multilingual/student.py` says how it is trained,
docs/experiments/multilingual.md has the figures.
"""

from __future__ import annotations

import json
import lzma
import random
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

import click
import numpy as np

CARD = Path(__file__).parent / "multilingual" / "pearl_mini_card.md"
N_LIKELIEST = 60_000
"""Pieces of the vocabulary that stay because they are likely in text, beside those that names of training have."""
N_TEXT, N_SENTENCES, N_HELD = 160_000, 260_000, 4_000
WORDS = "embeddings.word_embeddings.weight"


@click.group()
def main() -> None:
    """Pack, train, or finish."""


@main.command()
@click.option("--joint", type=click.Path(path_type=Path, exists=True), required=True)
@click.option("--data", type=click.Path(path_type=Path, exists=True), required=True)
@click.option("--sources", type=click.Path(path_type=Path, exists=True), required=True)
@click.option("--out", type=click.Path(path_type=Path), required=True)
def pack(joint: Path, data: Path, sources: Path, out: Path) -> None:
    """Write what the training needs: names, teachers, tokenizers."""
    from multilingual.data import WEIGHTS
    from multilingual.joint import read_members, read_parts
    from multilingual.packed import pack_blocks, pack_rows, pieces_to_keep, trim_tokenizer, write_json
    from safetensors.numpy import load_file
    from tokenizers import Tokenizer

    from pearl_qdrant.encoder.checkpoint import read_config
    from training.augment.draw import edit_character
    from training.export.graph_builder import read_blocks

    out.mkdir(parents=True, exist_ok=True)
    with lzma.open(sources, "rt", encoding="utf-8") as file:
        stored = json.load(file)
    stored["n_foreign_sources"] = len(WEIGHTS) + 1
    first_entity = [rows[0][2] if rows else "" for rows in stored["examples"]]
    stored["word_sources"] = [i for i, one in enumerate(first_entity) if re.match("noun|verb|adj|adv", one)]
    stored["more"] = more_texts(data, stored)
    with lzma.open(out / "names.xz", "wt", encoding="utf-8", preset=9) as file:
        json.dump(stored, file, ensure_ascii=False, separators=(",", ":"))

    english, world = (joint / member.model for member in read_members(joint))
    projections = read_parts(joint, [read_config(folder).dim for folder in (english, world)])
    texts = {n for rows in stored["examples"] for name, others, *_ in rows for n in (name, *others)}
    texts |= {*stored["plain"], *(t for group in stored["more"].values() for t in group)}
    ordered, rng = sorted(texts), random.Random(5)
    misspelt = [edit_character(text, rng) for text in rng.sample(ordered, min(len(ordered), 300_000))]
    tokenizer = Tokenizer.from_file(str(world / "tokenizer.json"))
    tokenizer.no_padding()
    used: set[int] = set()
    for some in (ordered, misspelt):
        for at in range(0, len(some), 50_000):
            for encoding in tokenizer.encode_batch(some[at : at + 50_000]):
                used.update(encoding.ids)
    content = json.loads((world / "tokenizer.json").read_text("utf-8"))
    kept = pieces_to_keep(content, used, N_LIKELIEST)
    click.echo(f"{len(ordered)} texts, {len(used)} pieces used, {len(kept)} kept")
    write_json(out / "tokenizer-world.json", trim_tokenizer(content, kept))
    shutil.copyfile(english / "tokenizer.json", out / "tokenizer-english.json")
    shutil.copyfile(english / "pearl.json", out / "config.json")

    arrays: dict[str, Any] = {}
    for part, folder in (("english", english), ("world", world)):
        for name, tensor in load_file(folder / "model.safetensors").items():
            key = f"{part}/{name}"
            if name == WORDS and (found := read_blocks(tensor)) is not None:
                arrays |= pack_blocks(key, found[0][kept], found[1][kept])
            elif name.startswith("embeddings.position"):
                arrays[key] = tensor[:72].astype(np.float16)
            else:
                arrays |= pack_rows(key, tensor) if tensor.ndim == 2 else {key: tensor}
    for name, tensor in load_file(english / "pearl.safetensors").items():
        if name.startswith("character"):
            arrays["characters/" + name.partition(".")[2]] = tensor.astype(np.float16)
    arrays |= {f"joint/{part}": one for part, one in zip(("english", "world"), projections, strict=True)}
    np.savez(out / "teachers.npz", **arrays)


def more_texts(data: Path, stored: dict[str, Any]) -> dict[str, list[str]]:
    """Texts beside the sources: canonical names, phrases, sentences; and some of each that are held out."""
    from mini_en.data import plain_phrases
    from mini_en.examples import held_out_strings
    from recipe_tables import read_texts, read_tsv

    from training.examples.example import TRAIN_SPLITS, split_of

    rng = random.Random(11)
    held_out = held_out_strings(data)
    known = {n for rows in stored["examples"] for name, others, *_ in rows for n in (name, *others)}
    rows = (row for row in read_tsv(data / "kb" / "general.tsv") if split_of(row["id"]) in TRAIN_SPLITS)
    names = sorted(
        {row["name"] for row in rows if row["name"].casefold() not in held_out and len(row["name"]) <= 60} - known
    )
    text = data / "text" / "enwiki_sample.jsonl.gz"
    phrases = sorted(set(plain_phrases(text, rng)) - known - set(stored["plain"]))
    phrases = rng.sample(phrases, min(N_TEXT, len(phrases)))
    sentences: set[str] = set()
    for article in read_texts(text):
        found = [s.strip() for s in re.split(r"(?<=[.!?])\s+|\n", article[:8000])]
        found = [s for s in found if 60 <= len(s) <= 240]
        for sentence in rng.sample(found, min(12, len(found))):
            words = sentence.split()
            n = len(words) if rng.random() < 0.4 else rng.randint(min(3, len(words)), min(24, len(words)))
            start = rng.randrange(len(words) - n + 1)
            sentences.add(" ".join(words[start : start + n]))
    chosen = rng.sample(sorted(sentences), min(N_SENTENCES, len(sentences)))
    rng.shuffle(names)
    rng.shuffle(phrases)
    n = N_HELD // 4
    held = [*names[:n], *phrases[: 2 * n], *chosen[:n]]
    return {"names": sorted(names[n:]), "text": sorted(phrases[2 * n :]), "sentences": sorted(chosen[n:]), "held": held}


@main.command()
@click.argument("packed", type=click.Path(path_type=Path, exists=True))
@click.option("--seconds", type=float, required=True, help="Time for all of it, reading included.")
@click.option("--device", default="cuda")
@click.option("--limit", type=int, help="Names to use, for a trial.")
@click.option("--out", type=click.Path(path_type=Path), required=True)
def train(packed: Path, seconds: float, device: str, limit: int | None, out: Path) -> None:
    """Train, and write words, layers, and the layers of the first part."""
    from multilingual.student import train as run

    run(packed, out, seconds=seconds, device=device, limit=limit)


@main.command()
@click.argument("run", type=click.Path(path_type=Path, exists=True))
@click.option("--packed", type=click.Path(path_type=Path, exists=True), required=True)
@click.option("--joint", type=click.Path(path_type=Path, exists=True), required=True)
@click.option("--ratio", type=float, default=1.0, help="Share of the second part in the layers; 0 is the first alone.")
@click.option("--sources", type=click.Path(path_type=Path, exists=True), help="With --data: fits the type head anew.")
@click.option("--data", type=click.Path(path_type=Path, exists=True))
@click.option("--out", type=click.Path(path_type=Path), required=True)
def finish(
    run: Path, packed: Path, joint: Path, ratio: float, sources: Path | None, data: Path | None, out: Path
) -> None:
    """Write the network as a checkpoint in 8 bits, the words in 4, with a type head."""
    import torch
    from mini_en.text_head import fit_text_head
    from multilingual.data import load_sources
    from multilingual.joint import read_members
    from multilingual.packed import unpack, write_json
    from safetensors.torch import save_file

    from training.examples.example import count_labels
    from training.export.export_checkpoint import export_checkpoint
    from training.networks.checkpoints import open_base_model, write_network

    files = [dict(np.load(path)) for path in sorted(run.glob("*.npz"))]
    by_name = dict(zip(sorted(path.stem for path in run.glob("*.npz")), files, strict=True))
    layers = by_name["layers-0"] | by_name["layers-1"]
    head = layers.pop("head")
    trained: dict[str, Any] = {"recipe": "runs/joint_student.py", **json.loads(str(layers.pop("trained")))}
    change = unpack(by_name["first-part"])
    tensors = {name: array.astype(np.float32) + (1 - ratio) * change[name] for name, array in layers.items()}
    words = [unpack(by_name[name])["words"] for name in sorted(by_name) if name.startswith("words-")]
    tensors[WORDS] = np.concatenate(words)
    positions = "embeddings.position_embeddings.weight"
    tensors["embeddings.token_type_embeddings.weight"] = np.zeros((2, tensors[WORDS].shape[1]), np.float32)
    start = joint / read_members(joint)[-1].model
    with tempfile.TemporaryDirectory() as work:
        plain = Path(work) / "plain"
        shutil.copytree(start, plain, ignore=shutil.ignore_patterns("*.safetensors", "onnx", "pearl.json", "*.md"))
        shutil.copyfile(packed / "tokenizer-world.json", plain / "tokenizer.json")
        config = json.loads((start / "config.json").read_text("utf-8"))
        sizes = {"vocab_size": len(tensors[WORDS]), "max_position_embeddings": len(tensors[positions])}
        write_json(plain / "config.json", config | sizes)
        contiguous = {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in tensors.items()}
        save_file(contiguous, plain / "model.safetensors", metadata={"format": "pt"})
        opened = open_base_model(str(plain), name="pearl-mini", prefix="")
        assert opened.network.type_head is not None
        opened.network.type_head.weight.data.copy_(torch.from_numpy(head.astype(np.float32)))
        updates: dict[str, Any] = {"training": trained | {"share_of_second": ratio}}
        if sources is not None:
            updates["label_counts"] = count_labels(e for s in load_sources(sources)[0] for e in s.examples)
        write_network(Path(work) / "torch", opened.network, opened.config.model_copy(update=updates), transformer=plain)
        click.echo(export_checkpoint(Path(work) / "torch", out))
    if sources is not None and data is not None:
        scores = fit_text_head(out, load_sources(sources)[0], data)
        percent = {name: f"{100 * value:.1f}" for name, value in scores.items() if name.startswith("type_")}
        card = CARD.read_text("utf-8").format(**{**scores, **percent, "pieces": len(tensors[WORDS])})
        (out / "README.md").write_text(card, encoding="utf-8")


if __name__ == "__main__":
    main()
