"""PEARL-small as in the paper, by the commands of this package.

    python runs/pearl_small.py --articles wiki.jsonl.zst --vectors crawl-300d-2M.vec --ner-model MODEL --work DIR
    python runs/pearl_small.py --articles sample.jsonl.gz --typed-names names.tsv --base E5 --steps 1055 --work DIR

The first is the paper's, which nobody of us could run: its corpus, FastText, Parrot and the NER model are on a hub. The
second is what was run (docs/experiments/ablation.md): without --vectors the character encoder mimics E5's own words and
no synonyms or paraphrases are made, without --ner-model types come from a list of names.

Stages, each a command that resumes after an interruption (`--print` only shows them):

    corpus        phrases of five classes seen at least twice; types by a NER model
    synonyms      neighbours of words in FastText vectors
    paraphrase    paraphrases by Parrot, once for each phrase
    love          the character encoder, by mimicry of FastText
    negatives     12 hard negatives per phrase by E5-small
    fit           two epochs, 512 phrases a step, Adam 3e-5, x 0.98 every 2,000 steps, temperature 0.07
    average       half and half with E5-small
    head          a new type head, on the averaged encoder
    export        the ONNX graph

The paper does not state the width of the character encoder's part (taken: 64), its share of the cosine (0.1), and how
hard negatives enter a batch (as in its code: 85 anchors and 170 hard negatives, each with a variant of its own, 510
phrases). PEARL's own corpus and negatives (Zenodo record 10676475) can replace the first stages: give their folder as
--corpus. The paper averages three seeds: --seed 0, 1, 2.

Source: PEARL (Chen et al. 2024), sections 3 and 4.2.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import click

BASE = "intfloat/e5-small"
PARROT = "prithivida/parrot_paraphraser_on_T5"


def stages(
    work: Path,
    texts: list[str],
    *,
    corpus: Path | None,
    vectors: Path | None,
    steps: int | None,
    base: str,
    gpus: int,
    seed: int,
) -> dict[str, list[str]]:
    """Return the command of each stage, by name, without `pearl-qdrant`.

    Args:
        texts: Articles and how they are typed, as `train corpus` takes them; unused with a corpus.
    """
    folder = corpus or work / "corpus"
    love, fitted, averaged, out = (work / f"{stage}-{seed}" for stage in ("love", "fitted", "averaged", "pearl"))
    commands: dict[str, list[str]] = {}
    if corpus is None:
        commands["corpus"] = ["train", "corpus", *texts, "--out", str(folder)]
        if vectors is not None:
            commands["synonyms"] = ["train", "synonyms", str(folder), "--vectors", str(vectors)]
            commands["paraphrase"] = ["train", "paraphrase", str(folder), "--model", PARROT]
    negatives = folder / "hard_negative.txt"
    if not negatives.exists():
        mining = ["--model", base]
        commands["negatives"] = ["train", "negatives", "--phrases", str(folder), *mining, "--out", str(negatives)]
    mimicked = [] if vectors is None else ["--vectors", str(vectors)]
    commands["love"] = ["train", "love", base, str(love), *mimicked, "--set", f"seed={seed}"]
    inputs = ["--phrases", str(folder), "--hard-negatives", str(negatives), "--character-encoder", str(love)]
    length = ["--set", "epochs=2"] if steps is None else ["--steps", str(steps)]
    settings = ["--paper-settings", *length, "--set", "batch_size=512", "--set", "workers=8", "--set", "device=cuda"]
    written = ["--set", f"seed={seed}", "--out", str(fitted)]
    commands["fit"] = ["train", "fit", "--base-model", base, *inputs, *settings, *written]
    commands["average"] = ["train", "average", base, str(fitted), str(averaged), "--ratio", "0.5"]
    commands["head"] = ["train", "head", "--base-model", str(averaged), "--phrases", str(folder), "--out", str(out)]
    commands["export"] = ["train", "export", str(out), str(work / f"pearl-small-{seed}")]
    if gpus > 1:
        commands["fit"] = ["torchrun", "--nproc-per-node", str(gpus), "-m", "pearl_qdrant", *commands["fit"]]
    return commands


@click.command()
@click.option("--articles", type=click.Path(path_type=Path), help="Wikipedia as plain text or JSON Lines.")
@click.option("--corpus", type=click.Path(path_type=Path, exists=True), help="An existing corpus.")
@click.option("--vectors", type=click.Path(path_type=Path), help="FastText's .vec file.")
@click.option("--ner-model", default="", help="Token classification model trained on OntoNotes.")
@click.option("--typed-names", type=click.Path(path_type=Path), help="Instead of it, names with their types.")
@click.option("--steps", type=int, help="Instead of two epochs.")
@click.option("--wordnet", default="/usr/share/wordnet", show_default=True, help="WordNet's folder.")
@click.option("--base", default=BASE, show_default=True, help="Folder or hub id of E5-small.")
@click.option("--gpus", type=int, default=1, show_default=True)
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--work", type=click.Path(path_type=Path), required=True)
@click.option("--print", "only_print", is_flag=True, help="Show the commands and stop.")
def main(work: Path, only_print: bool, **given: Any) -> None:
    """Make the checkpoint, stage by stage; a finished stage is not repeated."""
    if given["corpus"] is None and (given["articles"] is None or not (given["ner_model"] or given["typed_names"])):
        raise click.UsageError("Give --articles and --ner-model or --typed-names, or an existing --corpus.")
    if not only_print:
        from pearl_qdrant.encoder.loading import find_model

        given["base"] = str(find_model(given["base"]).folder)  # some stages need the folder
    ner_model, typed_names = given.pop("ner_model"), given.pop("typed_names")
    typing = ["--set", f"typed_names={typed_names}"]
    if ner_model:
        typing = ["--set", "typer=ner", "--set", f"ner_model={ner_model}", "--set", "device=cuda"]
    texts = [str(given.pop("articles")), "--wordnet", given.pop("wordnet"), *typing]
    for name, words in stages(work, texts, **given).items():
        launcher = [] if words[0] == "torchrun" else [sys.executable, "-m", "pearl_qdrant"]
        command = [*launcher, *words]
        click.echo(shlex.join(command), err=not only_print)
        done = work / f"{name}-{given['seed']}.done"
        if not only_print and not done.exists():
            subprocess.run(command, check=True)  # noqa: S603 - our own command, no shell
            done.touch()


if __name__ == "__main__":
    main()
