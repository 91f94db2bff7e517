"""Encodes with a model of fastembed, `fastembed:NAME`: its files, its pooling, its runtime, and no phrase types.

fastembed pads the names of a batch to the longest one, so that the last digits of a vector may depend on its batch; a
model with dynamic quantisation may differ by more. Needs the extra `fastembed`.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from fastembed import TextEmbedding

from pearl_qdrant.encoder.batching import NameTokenizer, first_line
from pearl_qdrant.encoder.checkpoint import combined_sha256, file_sha256
from pearl_qdrant.encoder.protocol import FASTEMBED, Encoded, FloatArray, ModelInfo
from pearl_qdrant.errors import ModelError, ModelNotFoundError

_BATCH = 64  # names; they are sorted by length, so that few are padded
_MAX_LENGTH = 512  # tokens; fastembed cuts at the model's own


class FastembedEncoder:
    """An encoder over a `TextEmbedding`. Safe to use from several threads, as onnxruntime's session is."""

    def __init__(self, info: ModelInfo, model: TextEmbedding, tokenizer: NameTokenizer) -> None:
        self.info = info
        self._model = model
        self._tokenizer = tokenizer

    def encode(self, names: Sequence[str]) -> Encoded:
        """Encode names, (n,) to (n, dim). Raises ValueError if a name has a lone surrogate, TypeError for a string in
        place of a list.
        """
        if isinstance(names, str):
            raise TypeError(f"names is a list of strings, not one string: pass [{names!r}]")
        texts, inverse = self._tokenizer.distinct(names)
        encodable = self._tokenizer.token_ids(texts)[1] if texts else np.zeros(0, dtype=np.bool_)
        vectors: FloatArray = np.zeros((len(texts), self.info.dim), dtype=np.float32)
        order = sorted((i for i in range(len(texts)) if encodable[i]), key=lambda i: len(texts[i]))
        prefixed = [self.info.prefix + texts[i] for i in order]
        for row, vector in zip(order, self._model.embed(prefixed, batch_size=_BATCH), strict=True):
            vectors[row] = vector
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        vectors /= np.where(norms > 0, norms, 1.0)
        return Encoded(vectors[inverse], encodable[inverse], None)


def fastembed_encoder(
    name: str, *, pooling: str | None = None, prefix: str | None = None, threads: int | None = None
) -> FastembedEncoder:
    """Load a model by its name in fastembed, such as "BAAI/bge-small-en-v1.5"; it is downloaded if it is not in
    fastembed's cache. Raises ModelNotFoundError if fastembed does not know it, or cannot fetch it; ModelError for
    another pooling than the model's own, which is stored as "mean" whatever it is.
    """
    if pooling not in (None, "mean"):
        raise ModelError(f"Model '{FASTEMBED}{name}' has a pooling of its own. Omit the option pooling.")
    known = [one["model"] for one in TextEmbedding.list_supported_models()]
    if name.lower() not in {one.lower() for one in known}:
        near = difflib.get_close_matches(name, known, n=3, cutoff=0.5) or known[:3]
        raise ModelNotFoundError(
            f"{FASTEMBED}{name}", f"fastembed has no model '{name}'; there are {', '.join(near)} and others."
        )
    try:
        model = TextEmbedding(name, threads=threads)
    except (OSError, ValueError) as error:
        raise ModelNotFoundError(
            f"{FASTEMBED}{name}",
            f"fastembed could not load '{name}' ({first_line(error)}). Is it in its cache, or the network there?",
        ) from error
    folder, files = _files(model)
    info = ModelInfo(
        name=f"{FASTEMBED}{name}",
        weights_hash=combined_sha256({file: file_sha256(folder / file) for file in files}),
        dim=model.embedding_size,
        pooling="mean",
        prefix=prefix or "",
        has_head=False,
        device="cpu",
        precision="fp32",
        runtime="onnx",
    )
    return FastembedEncoder(info, model, NameTokenizer(folder, max_length=_MAX_LENGTH, prefix=info.prefix))


def _files(model: TextEmbedding) -> tuple[Path, list[str]]:
    """The folder of a loaded model, and the weights in it."""
    inner: Any = model.model  # its folder is no part of the base class
    folder = Path(inner._model_dir)
    described = inner.model_description
    return folder, [one for one in (described.model_file, *described.additional_files) if (folder / one).is_file()]
