"""Paraphrases by a sequence-to-sequence model, computed once and kept in `phrase_aug.jsonl`.

The paper's model is Parrot (T5, `prithivida/parrot_paraphraser_on_T5`), which wants "paraphrase: " before the phrase;
any other model of the hub or in a folder will do. Rows are appended as they are made, so that a run that was killed
goes on where it stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from pearl_qdrant.errors import DeviceError, FormatError, ModelNotFoundError
from training.augment.options import DEFAULT_PARAPHRASER, ParaphraseOptions
from training.corpus.files import encode_row, parse_variants
from training.corpus.keys import phrase_key

_MAX_PHRASE_TOKENS = 64


class Paraphraser:
    """A model that writes phrases in other words."""

    def __init__(
        self, model: str = DEFAULT_PARAPHRASER, *, options: ParaphraseOptions | None = None, device: str = "cpu"
    ) -> None:
        """Load a model.

        Args:
            model: Folder, or hub id as OWNER/NAME[@REVISION], with weights in safetensors.
            options: How to generate.
            device: As torch names it.

        Raises:
            ModelNotFoundError: If there is no such model.
            DeviceError: If torch has no such device.
        """
        import torch
        from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

        self._options = options or ParaphraseOptions()
        name, _, revision = model.partition("@")
        try:
            self._tokenizer: Any = AutoTokenizer.from_pretrained(name, revision=revision or None)
            network = AutoModelForSeq2SeqLM.from_pretrained(name, revision=revision or None, use_safetensors=True)
        except Exception as error:  # whatever a damaged file makes transformers and safetensors trip over
            message = f"'{model}' is no sequence-to-sequence model that can be loaded: {error}"
            raise ModelNotFoundError(model, message) from error
        try:
            self._network: Any = network.eval().to(torch.device(device))
        except (RuntimeError, AssertionError) as error:
            raise DeviceError(device, f"Device '{device}' is not there: {error}. Take --device cpu") from error
        self._device = device

    def paraphrase(self, phrases: Sequence[str]) -> list[tuple[str, ...]]:
        """Paraphrases of each phrase, none blank or equal to it but for case and punctuation; perhaps none."""
        import torch

        options = self._options
        batch = self._tokenizer(
            [options.prefix + phrase for phrase in phrases],
            padding=True,
            truncation=True,
            max_length=_MAX_PHRASE_TOKENS,
            return_tensors="pt",
        )
        how: dict[str, Any] = {"num_beams": max(2, options.n_variants)}
        if options.sample:
            how = {"do_sample": True, "top_k": 50, "top_p": 0.95}
        with torch.inference_mode(), torch.random.fork_rng():
            # By the phrases too, so that a run that goes on draws the same as one that was not killed.
            torch.manual_seed((options.seed + phrase_key("\n".join(phrases))) % 2**63)
            made = self._network.generate(
                input_ids=batch["input_ids"].to(self._device),
                attention_mask=batch["attention_mask"].to(self._device),
                num_return_sequences=options.n_variants,
                max_new_tokens=options.max_new_tokens,
                **how,
            )
        texts = self._tokenizer.batch_decode(made, skip_special_tokens=True)
        n = options.n_variants
        return [_kept(phrase, texts[i * n : (i + 1) * n]) for i, phrase in enumerate(phrases)]


def write_paraphrases(
    phrases: Iterable[str],
    paraphraser: Paraphraser,
    path: Path,
    *,
    batch_size: int = 64,
    on_phrases: Callable[[int], None] = lambda n: None,
) -> int:
    """Append a row for each phrase to a file, and go on after those that it has.

    Args:
        phrases: In the same order at each run.
        paraphraser: Makes them.
        path: `phrase_aug.jsonl`; created if absent. A last batch that is not whole is made again.
        batch_size: Phrases at once; keep it for a run that goes on.
        on_phrases: Told how many phrases are done since it was last told.

    Returns:
        How many rows were written now.

    Raises:
        FormatError: If the file has rows of other phrases.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    iterator = iter(phrases)
    on_phrases(_go_on_after(iterator, path, batch_size))
    n_written = 0
    with path.open("a", encoding="utf-8", errors="replace", newline="\n") as file:
        while some := list(islice(iterator, batch_size)):
            for phrase, variants in zip(some, paraphraser.paraphrase(some), strict=True):
                file.write(encode_row({"phrase": phrase, "aug": variants}) + "\n")
            file.flush()
            n_written += len(some)
            on_phrases(len(some))
    return n_written


def _go_on_after(phrases: Iterator[str], path: Path, batch_size: int) -> int:
    """Pass over the phrases of the batches that the file has whole, and cut off the rest; returns how many they are."""
    if not path.exists():
        return 0
    with path.open("rb+") as file:
        n_whole = sum(line.endswith(b"\n") for line in file)
        n_kept = n_whole - n_whole % batch_size
        file.seek(0)
        for number, phrase in enumerate(islice(phrases, n_kept), 1):
            row = parse_variants(file.readline())
            if row is None or row[0] != phrase:
                message = f"is not of {phrase!r}. The file is of other phrases: write to another with --out"
                raise FormatError(str(path), number, message)
        file.truncate(file.tell())
    return n_kept


def _kept(phrase: str, texts: Sequence[str]) -> tuple[str, ...]:
    """The texts without blanks and repeats, those of the phrase too."""
    seen = {_key(phrase)}
    kept = []
    for text in (" ".join(text.split()) for text in texts):
        if _key(text) not in seen and _key(text):
            seen.add(_key(text))
            kept.append(text)
    return tuple(kept)


def _key(text: str) -> str:
    return "".join(c for c in text.casefold() if c.isalnum())
