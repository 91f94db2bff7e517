"""The judge of two names: reads both at once and says how sure it is that they name one thing.

    names of a pair  ->  tokens  ->  word vectors, by the encoder's graph  ->  judge.onnx  ->  logit

It is a cross-encoder over the word table of the shipped encoder (`training.judge` has network and training), so that it
needs no vectors of the collection and judges names of collections that another model encoded just as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pearl_qdrant.encoder.batching import CHARACTERS_PER_TOKEN, cutting_tokenizer, plan_batches, tokenizer_errors
from pearl_qdrant.encoder.checkpoint import ONNX_FILE, read_config
from pearl_qdrant.encoder.loading import MODELS_DIR
from pearl_qdrant.encoder.runtime.onnx_runtime import OnnxGraph, open_session, shared_graph
from pearl_qdrant.errors import CheckpointError
from pearl_qdrant.lexical.words import usual_case
from pearl_qdrant.settings import DEFAULT_MODEL, usable_cores

JUDGE_FILE = "onnx/judge.onnx"
LONGEST = 32  # tokens of each name that are read
BEGIN, END = "<s>", "</s>"

MAX_TOKENS, MAX_PAIRS = 512, 128  # of a batch, as in `onnx_runtime`


class NameJudge:
    """Judges pairs of names. Safe to use from several threads.

    Args:
        folder: The checkpoint whose words it reads: a tokenizer, and a graph with the output `words`.
        graph: The graph of the judge; by default `JUDGE_FILE` of that folder.
        threads: Batches that run at once; by default one a core.

    Raises:
        CheckpointError: If one of the files is missing or cannot be read, or the graphs do not belong together.
    """

    def __init__(self, folder: Path, graph: Path | None = None, *, threads: int | None = None) -> None:
        self._path = folder / "tokenizer.json"
        self._tokenizer = cutting_tokenizer(self._path, max(LONGEST, read_config(folder).max_length))  # the encoder's
        begin, end = (self._tokenizer.token_to_id(token) for token in (BEGIN, END))
        self._words: OnnxGraph = shared_graph(folder / ONNX_FILE)
        path = graph or folder / JUDGE_FILE
        self._session = open_session(path)
        shapes = {one.name: one.shape for one in self._session.get_inputs()}
        if begin is None or end is None or "words" not in self._words.outputs or {"words", "part"} - shapes.keys():
            raise CheckpointError(str(path), "does not belong to the graph and the tokenizer beside it. Fetch it again")
        self._begin, self._end = int(begin), int(end)
        self._threads = threads or usable_cores()
        self._pool = ThreadPoolExecutor(self._threads, "judge") if self._threads > 1 else None

    def scores(self, pairs: Sequence[tuple[str, str]]) -> npt.NDArray[np.float64]:
        """Judge pairs of a mention and a name.

        Args:
            pairs: The names; of each the first `LONGEST` tokens are read, in `usual_case` where one of the two alone is
                in capitals, and without a full stop that both end with.

        Returns:
            A logit for each pair, (n,): that both are names of one thing.
        """
        found = np.zeros(len(pairs))
        if not pairs:
            return found
        pairs = [(a, b) if a.isupper() == b.isupper() else (usual_case(a), usual_case(b)) for a, b in pairs]
        pairs = [(a[:-1], b[:-1]) if a[-1:] == b[-1:] == "." else (a, b) for a, b in pairs]
        texts = list(dict.fromkeys(text for pair in pairs for text in pair))
        with tokenizer_errors(self._path, f"cannot tokenise one of {len(texts):,} names"):
            cut = [text[: LONGEST * CHARACTERS_PER_TOKEN] for text in texts]
            encoded = self._tokenizer.encode_batch_fast(cut, add_special_tokens=False)
        ids = {text: one.ids[:LONGEST] for text, one in zip(texts, encoded, strict=True)}
        both = [(ids[mention], ids[name]) for mention, name in pairs]
        lengths = np.array([len(a) + len(b) + 3 for a, b in both])
        plans = list(plan_batches(lengths, max_tokens=MAX_TOKENS, max_names=MAX_PAIRS))

        def run(rows: npt.NDArray[np.int64]) -> None:
            found[rows] = self._run([both[row] for row in rows])

        if self._pool is None or len(plans) == 1:
            for rows in plans:
                run(rows)
        else:
            list(self._pool.map(run, plans))
        return found

    def _run(self, pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> npt.NDArray[np.float32]:
        """The logits of one batch, (b,)."""
        width = max(len(a) + len(b) for a, b in pairs) + 3
        ids = np.full((len(pairs), width), self._end, dtype=np.int64)
        part = np.zeros((len(pairs), width), dtype=np.int64)
        for i, (a, b) in enumerate(pairs):
            n, m = len(a) + 2, len(b) + 1
            ids[i, : n + m] = [self._begin, *a, self._end, *b, self._end]
            part[i, :n], part[i, n : n + m] = 1, 2
        words = self._words.look_up(ids)
        logits: npt.NDArray[np.float32] = self._session.run(["logit"], {"words": words, "part": part})[0]
        return logits


@lru_cache(maxsize=1)
def shipped_judge() -> NameJudge:
    """The judge that comes with this package."""
    return NameJudge(MODELS_DIR / DEFAULT_MODEL)
