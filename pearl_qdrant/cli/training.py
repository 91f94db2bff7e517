"""`pearl-qdrant train`: what training learns from, what is trained, and what makes a model of a trained network."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pearl_qdrant.cli import shared
from pearl_qdrant.cli.setting import field_option, flag_of, set_option
from pearl_qdrant.cli.shared import needs_extra
from pearl_qdrant.cli.terminal import echo
from pearl_qdrant.encoder.checkpoint import is_checkpoint
from pearl_qdrant.errors import OptionError
from pearl_qdrant.progress import counting_bar
from training.finetune.request import FitRequest
from training.judge.request import JudgeRequest
from training.options import (
    AVERAGE_RATIO,
    DEFAULT_PARAPHRASER,
    STAGES,
    CorpusOptions,
    LoveConfig,
    NgramOptions,
    RefreshEvents,
    RefreshRequest,
    RefreshResult,
    TrainingEvents,
)
from training.ulr.request import UlrRequest

if TYPE_CHECKING:
    from training.corpus.make_corpus import CorpusReport
    from training.ngrams.find_ngrams import NgramReport


COMMANDS = "corpus ngrams paraphrase synonyms negatives love fit ulr refresh average head export judge".split()
"""Of `pearl-qdrant train`."""


PATH = click.Path(path_type=Path)
FOLDER = click.Path(path_type=Path, file_okay=False)

phrases_option = field_option(FitRequest, "phrases", multiple=True, metavar="PATH")
aliases_option = field_option(FitRequest, "aliases", multiple=True, metavar="PATH")
base_model_option = field_option(FitRequest, "base_model", metavar="DIR|HUB")

_QUOTED = re.compile(r"'(\w+)'")


class TrainingOutput(TrainingEvents):
    """Prints the events of a stage on stderr; encoding has a progress bar."""

    def __init__(self) -> None:
        self._bar: Any = None

    def examples_read(self, count: int, skipped: Mapping[str, int]) -> None:
        reasons = ", ".join(f"{n:,} {reason}" for reason, n in skipped.items())
        echo(f"{count:,} examples{f'; skipped: {reasons}' if reasons else ''}", err=True)

    def types_at_risk(self, kept: int, known: int) -> None:
        echo(
            f"These names have {kept} of the {known} entity types that the type head knows: it will forget the others. "
            f"Keep the head unchanged with --set type_weight=0, or add names of the other types",
            err=True,
        )

    def names_encoded(self, count: int) -> None:
        if self._bar is None:
            self._bar = counting_bar("encode", " names")
        self._bar.update(count)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()


@contextmanager
def training_stage() -> Iterator[TrainingOutput]:
    """Run a stage: print its events, name in errors what the user wrote, and say how to install missing libraries."""
    output = TrainingOutput()
    try:
        with needs_extra("train"):
            yield output
    except OptionError as error:
        command = click.get_current_context().command
        message = _QUOTED.sub(lambda found: flag_of(command, found[1]) or found[0], str(error))
        parameter = next((p for p in command.params if p.name == error.option), None)
        raise click.BadParameter(message, param=parameter) from error
    finally:
        output.close()


def given_only(options: dict[str, Any]) -> dict[str, Any]:
    """Without the options that were not given, whose defaults the library has."""
    return {name: value for name, value in options.items() if value not in (None, ())}


@click.command("corpus")
@click.argument("inputs", nargs=-1, metavar="[INPUT]...")
@click.option("--out", type=FOLDER, required=True, help="Folder of the corpus.")
@set_option("training.options:CorpusOptions")
def corpus(inputs: tuple[str, ...], out: Path, settings: dict[str, Any]) -> None:
    """Make phrases with lexical classes and entity types from text, and positives from bases.

    INPUT is plain text or JSON Lines, compressed or not; - is standard input. Writes freq_phrase.txt and
    phrase_with_etype.txt, and for bases entities.jsonl.

    \b
    pearl-qdrant train corpus articles.jsonl.gz --set wordnet=wordnet/ --out corpus
    pearl-qdrant train corpus wiki.txt.zst --set wordnet=wordnet/ --set typer=ner --set ner_model=MODEL --out corpus
    pearl-qdrant train corpus --set bases=umls.tsv --out corpus
    """
    with counting_bar("parsing", " texts") as bar, training_stage():
        from pearl_qdrant import make_corpus

        report = make_corpus(inputs, out, CorpusOptions(**settings), on_texts=bar.update)
    echo(*_corpus_text(report, out))


def _corpus_text(report: CorpusReport, out: Path) -> list[str]:
    lines = [f"{out}: {report.texts:,} texts, {report.entities:,} entities, {report.seconds:.0f} s"]
    if report.counts is not None:
        for lexical_class, count in report.counts.phrases.most_common():
            lines.append(f"  {lexical_class:<12}{count:>12,}  {report.counts.share(lexical_class):6.1%}")
        for kind, count in report.counts.types.most_common():
            lines.append(f"  {kind:<12}{count:>12,}  {count / max(1, report.counts.types.total()):6.1%}")
    return [*lines, *_skipped(report.skipped)]


def _skipped(counts: Counter[str]) -> list[str]:
    return ["  skipped: " + ", ".join(f"{reason} {n}" for reason, n in sorted(counts.items()))] if counts else []


@click.command()
@click.argument("inputs", nargs=-1, required=True, metavar="TEXT...")
@click.argument("out", type=FOLDER)
@set_option("training.options:NgramOptions")
def ngrams(inputs: tuple[str, ...], out: Path, settings: dict[str, Any]) -> None:
    """Find the meaningful n-grams of texts by PMI, and mark them in the sentences: the first stage of ULR.

    TEXT is plain text with a document on each line, or JSON Lines, compressed or not; - is standard input. OUT is a
    folder: ngrams.tsv has each n-gram with its count and PMI; the other files have the sentences and where their
    n-grams are. Memory is bounded; with the defaults temporary files take 9 times the size of the text.

    \b
    pearl-qdrant train ngrams articles.jsonl.gz ngrams/
    pearl-qdrant train ngrams wiki.txt.zst ngrams/ --set min_pmi=4
    """

    def counted(level: int) -> None:
        if level == 1:
            bar.close()
        echo(f"n-grams of {level} words are counted" if level > 1 else "words are counted", err=True)

    with counting_bar("reading", " documents") as bar, training_stage():
        from pearl_qdrant import find_ngrams

        report = find_ngrams(inputs, out, NgramOptions(**settings), on_texts=bar.update, on_level=counted)
    echo(*_ngram_text(report, out))


def _ngram_text(report: NgramReport, out: Path) -> list[str]:
    share = report.marked_sequences / max(1, report.sequences)
    lines = [f"{out}: {report.documents:,} documents, {report.words:,} words, {report.seconds:.0f} s"]
    lines.append(f"  {report.ngrams.total():,} n-grams; {report.spans:,} spans in {report.sequences:,} sequences")
    lines.append(f"  {share:.1%} of the sequences have a span")
    lines += [f"  {n} words{count:>12,}" for n, count in sorted(report.ngrams.items())]
    return [*lines, *_skipped(report.skipped)]


@click.command()
@click.argument("corpus", type=PATH, metavar="CORPUS")
@click.option("--model", default=DEFAULT_PARAPHRASER, show_default=True,
              help="Sequence-to-sequence model: a folder, or a hub id as OWNER/NAME[@REVISION].")  # fmt: skip
def paraphrase(corpus: Path, model: str) -> None:
    """Paraphrase the phrases of a corpus with a model, once; `train fit` draws from the file.

    CORPUS is a folder with freq_phrase.txt. The same command resumes a run that was interrupted.

    \b
    pearl-qdrant train paraphrase corpus
    pearl-qdrant train paraphrase corpus --model my-t5/
    """
    with counting_bar("paraphrasing", " phrases") as bar, training_stage():
        from pearl_qdrant import paraphrase_corpus
        from training.networks.checkpoints import find_device

        device = str(find_device(shared.device_of_environment()))
        written = paraphrase_corpus(corpus, model=model, device=device, on_phrases=bar.update)
    echo(f"{written.path}: {written.rows:,} phrases written")


@click.command()
@click.argument("corpus", type=PATH, metavar="CORPUS")
@click.option("--vectors", type=PATH, required=True, help="Word vectors: a .vec file of FastText, or GloVe's.")
def synonyms(corpus: Path, vectors: Path) -> None:
    """Find neighbours of the words of a corpus among word vectors, once; `train fit` draws from the file.

    \b
    pearl-qdrant train synonyms corpus --vectors crawl-300d-2M.vec
    """
    with training_stage():
        from pearl_qdrant import find_synonyms

        written = find_synonyms(corpus, vectors)
    echo(f"{written.path}: {written.rows:,} words with neighbours")


@click.command()
@phrases_option
@aliases_option
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), required=True, help="hard_negative.txt.")
@shared.shipped_model_option("Base encoder: the candidates with its lowest cosines are kept.")
def negatives(out: Path, **inputs: Any) -> None:
    """Find hard negatives: phrases that are spelled almost like a phrase and mean something else.

    A hard negative is never of the same entity, equal after case and punctuation folding, or close in meaning.

    \b
    pearl-qdrant train negatives --phrases corpus --out corpus/hard_negative.txt
    pearl-qdrant train negatives --aliases umls.tsv --model all-MiniLM-L6-v2/ --out hard_negative.txt
    """
    with training_stage() as output:
        from pearl_qdrant import mine_negatives

        n_rows = mine_negatives(out, device=shared.device_of_environment(), events=output, **inputs)
    echo(f"{out}: {n_rows:,} phrases with hard negatives", err=True)


@click.command()
@click.argument("base_model", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.argument("out", type=FOLDER)
@set_option("LoveSettings")
def love(base_model: Path, out: Path, settings: dict[str, Any]) -> None:
    """Pre-train a character encoder for the encoder in folder BASE_MODEL, by mimicry of word vectors (LOVE).

    The same command resumes a run that was interrupted. Give OUT to `train fit` as `--set character_encoder=OUT`.

    \b
    pearl-qdrant train love all-MiniLM-L6-v2/ love/
    pearl-qdrant train love e5-small/ love/ --set vectors=wiki-news-300d-1M.vec
    """
    with training_stage():
        from pearl_qdrant import pretrain_character_encoder

        vectors, resume = settings.pop("vectors", None), not settings.pop("restart", False)
        config = LoveConfig(**settings)
        mimicry = pretrain_character_encoder(base_model, out, config=config, resume=resume, vectors=vectors)
    echo(str(mimicry))


@click.command()
@base_model_option
@field_option(FitRequest, "out", type=FOLDER)
@phrases_option
@aliases_option
@set_option("training.finetune.request:FitRequest")
def fit(settings: dict[str, Any], **options: Any) -> None:
    """Fine-tune an encoder on phrases: contrastive learning and phrase type classification.

    The same command resumes a run that was interrupted. State and log.csv are written to OUT/training.
    On several GPUs: torchrun --nproc-per-node 4 -m pearl_qdrant train fit ...

    \b
    pearl-qdrant train fit --base-model all-MiniLM-L6-v2/ --phrases corpus --out fitted
    pearl-qdrant train fit --base-model fitted --aliases umls.tsv --set schedule=cosine --out refreshed
    pearl-qdrant train fit --base-model intfloat/e5-small --phrases corpus --set paper_settings=yes --out pearl
    """
    with training_stage() as output:
        from pearl_qdrant import fit_model

        result = fit_model(FitRequest(**given_only(options), **settings), events=output)
    if result.wrote:
        out = result.checkpoint
        echo(f"{out}: {result.steps:,} steps; log in {out / 'training'}. Next: train average", err=True)


@click.command()
@click.argument("base", metavar="BASE")
@click.argument("out", type=FOLDER)
@field_option(UlrRequest, "texts", "--text", multiple=True, metavar="PATH")
@field_option(UlrRequest, "ngrams", metavar="PATH")
@set_option("training.ulr.request:UlrRequest")
def ulr(settings: dict[str, Any], **options: Any) -> None:
    """Train encoder BASE so that the vectors of an n-gram and of the rest add up to the sequence's (ULR).

    BASE is a folder or a hub id of kind BERT, ALBERT, ELECTRA, RoBERTa, MPNet or DistilBERT. OUT is a plain encoder,
    and a --base-model for `train fit`. The same command resumes a run that was interrupted. State and log.csv
    are written to OUT/training.

    \b
    pearl-qdrant train ulr all-MiniLM-L6-v2/ ulr/ --text articles.jsonl.gz --set steps=2000
    pearl-qdrant train ulr bert-base/ ulr/ --ngrams ngrams/
    """
    with training_stage() as output:
        from pearl_qdrant import train_ulr

        result = train_ulr(UlrRequest(**given_only(options), **settings), events=output)
    head = f", the first {result.head_steps:,} of the MLM head alone" if result.head_steps else ""
    echo(f"{result.encoder}: {result.steps:,} steps{head}; log in {result.encoder / 'training'}", err=True)


class _Output(RefreshEvents):
    """Says each stage on a line, with its number."""

    def stage(self, name: str, detail: str = "") -> None:
        echo(f"{STAGES.index(name) + 1} of {len(STAGES)}: {name}{f' ({detail})' if detail else ''}", err=True)


@click.command()
@click.argument("base", nargs=-1, required=True, type=PATH)
@click.option("--out", type=FOLDER, required=True, help="Folder of the exported model.")
@set_option("training.options:RefreshRequest")
def refresh(base: tuple[Path, ...], out: Path, settings: dict[str, Any]) -> None:
    """Fine-tune an encoder on the names of BASE, and say whether it helped.

    A tenth of the entities, at most 2,000, is kept out of training. Their aliases are linked with the new model and
    with its start. The same command resumes a run that was interrupted.

    \b
    pearl-qdrant train refresh umls.tsv --out model/
    pearl-qdrant train refresh umls.tsv --out model/ --set minutes=120
    """
    with training_stage():
        from pearl_qdrant import refresh_model

        request = RefreshRequest(base=base, out=out, **settings)
        result = refresh_model(request, events=_Output())
    _print(result, request.model, base)


def _print(result: RefreshResult, start: str, base: tuple[Path, ...]) -> None:
    for one in result.figures:
        echo(f"{one.task}: {one.before:.1f} with {start}, {one.after:.1f} now ({one.low:+.1f} to {one.high:+.1f})")
    said = {
        "better": f"It helped. Encode the base with it: pearl-qdrant ingest {' '.join(map(str, base))} "
        f"--model {result.model} --collection NAME",
        "no difference": "No difference that can be told from chance: try a longer --set minutes=, or a base with "
        "more aliases",
        "worse": f"It is worse than {start}: do not use it. A lower --set ratio= keeps more of the start",
        "not measured": "Too few entities with aliases were kept out to say whether it helped",
    }
    echo(f"{result.model}: {result.steps:,} steps on {result.entities:,} entities, {result.held_out:,} kept out")
    echo(said[result.verdict])


_EXISTING = click.Path(path_type=Path, exists=True, file_okay=False)


@click.command()
@click.argument("base_model", type=_EXISTING)
@click.argument("tuned", type=_EXISTING)
@click.argument("out", type=FOLDER)
@click.option("--ratio", type=click.FloatRange(0, 1), default=AVERAGE_RATIO, show_default=True,
              help="Share of TUNED: 0 is BASE_MODEL, 1 is TUNED unchanged.")  # fmt: skip
def average(base_model: Path, tuned: Path, out: Path, ratio: float) -> None:
    """Average the fine-tuned checkpoint TUNED with the encoder BASE_MODEL that it started from, against forgetting.

    TUNED may also be a plain encoder, as `train ulr` writes it, and OUT is one then. Only the phrase encoder is
    averaged. Type head and character encoder stay TUNED's. `pearl-qdrant train head` fits a new head to the result. It
    needs names of every type that the head is to know: a head of few types is worse than none.

    \b
    pearl-qdrant train average all-MiniLM-L6-v2/ fitted/ averaged/ --ratio 0.5
    """
    with training_stage():
        from pearl_qdrant import average_checkpoint

        average_checkpoint(base_model, tuned, out, ratio=ratio)
    done = f"{out}: {ratio:g} of {tuned}, {1 - ratio:g} of {base_model}."
    if is_checkpoint(out):
        done += (
            f" Its type head is that of {tuned}; with names of every type, `train head` fits one to the averaged "
            "vectors. Next: train export"
        )
    echo(done, err=True)


@click.command()
@base_model_option
@click.option("--out", type=FOLDER, required=True, help="Checkpoint to write.")
@phrases_option
@aliases_option
def head(base_model: str, out: Path, **others: Any) -> None:
    """Fit a type head on a frozen encoder, and write both as a checkpoint.

    A tenth of the names is held out and scored.

    \b
    pearl-qdrant train head --base-model Lihuchen/pearl_small --phrases phrase_with_etype.txt --out pearl-small-typed
    pearl-qdrant train head --base-model averaged/ --aliases base.tsv --out typed
    """
    with training_stage() as output:
        from pearl_qdrant import train_head

        scores = train_head(base_model, out, device=shared.device_of_environment(), events=output, **others)
    if scores is not None:
        echo(f"{out}: accuracy {scores.accuracy:.1%}, macro-F1 {scores.macro_f1:.3f} on {scores.n:,} names")


@click.command()
@click.argument("model", type=_EXISTING)
@click.argument("out", type=FOLDER)
@click.option("--name", help="Name of the exported model.  [default: that of MODEL]")
def export(model: Path, out: Path, name: str | None) -> None:
    """Export the trained checkpoint MODEL as one ONNX graph, and check that graph and network agree.

    \b
    pearl-qdrant train export averaged/ my-model/ --name my-model
    pearl-qdrant link "nytimes.com" --model my-model/
    """
    with training_stage():
        from pearl_qdrant import export_checkpoint

        parity = export_checkpoint(model, out, name=name)
    echo(str(parity))


@click.command()
@click.argument("base_model", metavar="MODEL")
@click.argument("examples", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.argument("out", type=FOLDER)
@set_option("training.judge.request:JudgeRequest")
def judge(settings: dict[str, Any], **arguments: Any) -> None:
    """Train a judge of two names over the exported encoder MODEL: a network that reads both and says if they name one
    thing.

    EXAMPLES is JSON Lines: entities with their names and near names of others, and mentions with right and wrong
    candidates. OUT gets judge.onnx. The same command resumes a run that was interrupted. State and log.csv are written
    to OUT/training.

    \b
    pearl-qdrant train judge pearl-mini examples.jsonl judge/ --set wordnet=/usr/share/wordnet
    """
    with training_stage():
        from pearl_qdrant import train_judge

        result = train_judge(JudgeRequest(**arguments, **settings))
    learnt = f"{result.groups:,} entities and {result.given:,} given mentions"
    echo(f"{result.judge}: {result.steps:,} steps on {learnt}; log in {result.judge / 'training'}", err=True)
