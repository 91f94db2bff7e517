"""Paraphrase phrases with a sequence-to-sequence model, once, and store the result in `phrase_aug.jsonl`.

The paper's model is Parrot (T5, `prithivida/parrot_paraphraser_on_T5`), which needs "paraphrase: " before the phrase.
Any other model of the hub or in a folder works too. Rows are appended as they are made, so that an interrupted run
resumes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from pearl_qdrant.errors import DeviceError, FormatError, ModelNotFoundError
from training.corpus.files import encode_row, parse_variants
from training.corpus.keys import phrase_key
from training.options import DEFAULT_PARAPHRASER, ParaphraseOptions

_MAX_PHRASE_TOKENS = 64


class Paraphraser:
    """A model that paraphrases phrases."""

    def __init__(
        self, model: str = DEFAULT_PARAPHRASER, *, options: ParaphraseOptions | None = None, device: str = "cpu"
    ) -> None:
        """Load a model.

        Args:
            model: Folder, or hub id as OWNER/NAME[@REVISION], with weights in safetensors.
            options: How to generate.
            device: Device, as torch names it.

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
        except Exception as error:  # a damaged file can raise anything in transformers and safetensors
            message = f"'{model}' cannot be loaded as a sequence-to-sequence model: {error}"
            raise ModelNotFoundError(model, message) from error
        try:
            self._network: Any = network.eval().to(torch.device(device))
        except (RuntimeError, AssertionError) as error:
            raise DeviceError(device, f"Device '{device}' is not available: {error}. Use device cpu") from error
        self._device = device

    def paraphrase(self, phrases: Sequence[str]) -> list[tuple[str, ...]]:
        """Paraphrase each phrase; blank variants and those equal except for case and punctuation are dropped."""
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
            # The seed depends on the phrases too, so that a resumed run draws the same as an uninterrupted one.
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
    """Append a row for each phrase to a file, after the rows that it has.

    Args:
        phrases: In the same order in each run.
        paraphraser: Makes the paraphrases.
        path: `phrase_aug.jsonl`; created if absent. An incomplete last batch is made again.
        batch_size: Phrases per batch; a resumed run must use the same number.
        on_phrases: Called with the number of phrases done since the last call.

    Returns:
        Number of rows written by this call.

    Raises:
        FormatError: If the file has rows of other phrases.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    iterator = iter(phrases)
    on_phrases(_skip_written(iterator, path, batch_size))
    n_written = 0
    with path.open("a", encoding="utf-8", errors="replace", newline="\n") as file:
        while some := list(islice(iterator, batch_size)):
            for phrase, variants in zip(some, paraphraser.paraphrase(some), strict=True):
                file.write(encode_row({"phrase": phrase, "aug": variants}) + "\n")
            file.flush()
            n_written += len(some)
            on_phrases(len(some))
    return n_written


def _skip_written(phrases: Iterator[str], path: Path, batch_size: int) -> int:
    """Skip the phrases of complete batches in the file, and truncate the rest; returns the number of skipped ones."""
    if not path.exists():
        return 0
    with path.open("rb+") as file:
        n_whole = sum(line.endswith(b"\n") for line in file)
        n_kept = n_whole - n_whole % batch_size
        file.seek(0)
        for number, phrase in enumerate(islice(phrases, n_kept), 1):
            row = parse_variants(file.readline())
            if row is None or row[0] != phrase:
                message = f"is not of {phrase!r}. The file is of other phrases. Write to another file"
                raise FormatError(str(path), number, message)
        file.truncate(file.tell())
    return n_kept


def _kept(phrase: str, texts: Sequence[str]) -> tuple[str, ...]:
    """Return the texts without blanks, repetitions and copies of the phrase."""
    seen = {_key(phrase)}
    kept = []
    for text in (" ".join(text.split()) for text in texts):
        if _key(text) not in seen and _key(text):
            seen.add(_key(text))
            kept.append(text)
    return tuple(kept)


def _key(text: str) -> str:
    return "".join(c for c in text.casefold() if c.isalnum())
