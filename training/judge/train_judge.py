"""The training of the judge of two names, from a file of examples to a graph: what `train_judge` does.

    binary cross-entropy over pairs; AdamW; the rate rises over 150 steps and falls to 0 as (1 - done) ** 0.7

Cost: four layers of 384 columns learn from about 120 pairs a second on one core with bfloat16, six from 80.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pearl_qdrant.encoder.batching import open_tokenizer
from pearl_qdrant.encoder.checkpoint import open_checkpoint
from pearl_qdrant.encoder.json_files import read_json
from pearl_qdrant.encoder.judge import JUDGE_FILE
from pearl_qdrant.encoder.loading import find_model
from pearl_qdrant.errors import OptionError
from pearl_qdrant.store.system import write_atomically
from training.export.int8_graph import rebuild_judge, rebuild_phrase_encoder
from training.judge.differences import Words
from training.judge.examples import Pair, PairSource, read_examples
from training.judge.export import write_judge
from training.judge.network import Judge, pad, pair_tokens
from training.judge.request import JudgeRequest, JudgeResult
from training.networks.checkpoints import find_device
from training.networks.phrase_vectors import find_precision
from training.options import refuse_overwriting
from training.training_loop import LossRecord, Objective, TrainingLoop

JUDGE, GRAPH = "judge.safetensors", "judge.onnx"
_CHUNK = 24  # batches that are drawn together, so that pairs of one length share a batch
_WARM_UP = 150  # steps
_HEAD_RATE = 5.0  # learning rate of what starts from random weights, as a multiple

Tokens = tuple[list[int], list[int]]


def open_judge(model: str, *, layers: int, start: Path | None = None) -> Judge:
    """A judge over the first layers of an encoder: new, or with the weights of one that was trained, in 8 bits where
    they are not kept otherwise, which may have fewer layers. Raises ModelError if there is no such encoder, or it is
    not in 8 bits; OptionError if `start` has no judge, or one of more layers or of another encoder.
    """
    config = read_json(find_model(model).folder / "config.json")
    heads, n_layers = int(config["num_attention_heads"]), min(layers, int(config["num_hidden_layers"]))
    weights = _encoder_weights(model)
    if start is None:
        return Judge(weights, n_layers=n_layers, heads=heads)
    try:
        if (start / JUDGE).exists():
            from safetensors.torch import load_file

            state = load_file(start / JUDGE)
            judge = Judge(weights, n_layers=sum(name.endswith(".qkv.weight") for name in state), heads=heads)
            judge.load_state_dict(state)
        else:
            judge = _rebuilt(start / JUDGE_FILE, weights, heads)
    except FileNotFoundError:
        message = f"'start' has no judge: neither {JUDGE} nor {JUDGE_FILE} is in {start}. Name a folder that has one."
        raise OptionError("start", message) from None
    except (KeyError, RuntimeError, ValueError) as error:
        message = f"'start' has another judge: that of {start} is not made of this encoder. Pass the one that it was "
        raise OptionError("start", message + "trained with.") from error
    if len(judge.layers) > n_layers:
        message = f"'start' has more than {n_layers} layers: {len(judge.layers)}. Pass its number as 'layers'."
        raise OptionError("start", message)
    return judge


def _encoder_weights(model: str) -> dict[str, Any]:
    return rebuild_phrase_encoder(open_checkpoint(find_model(model).folder))


def _rebuilt(path: Path, weights: dict[str, Any], heads: int) -> Judge:
    found, of_name, dense = rebuild_judge(path, heads)
    n_layers = sum(name.endswith(".attention.self.query.weight") for name in found)
    judge = Judge(weights | found, n_layers=n_layers, heads=heads)
    with torch.no_grad():
        judge.of_name.copy_(torch.tensor(of_name))
        for layer, (matrix, bias) in zip((judge.inner, judge.outer), dense, strict=True):
            layer.weight.copy_(torch.tensor(matrix.T))
            layer.bias.copy_(torch.tensor(bias))
    return judge


def keep(judge: Judge, before: Iterable[Tensor], share: float) -> None:
    """Take the mean of a judge's weights and those before, with this share of the latter. Source: Wortsman et al. 2022,
    Robust fine-tuning of zero-shot models, equation 1.
    """
    with torch.no_grad():
        for ours, theirs in zip(judge.parameters(), before, strict=True):
            ours.lerp_(theirs, share)


def train_judge(request: JudgeRequest) -> JudgeResult:
    """Train a judge; the same call resumes a run that was interrupted.

    Raises:
        OptionError: If a value is out of bounds, or there is nothing to learn from.
        InputError: If the examples cannot be read.
        ModelError: If the encoder cannot be loaded.
        TrainingError: If `out` holds the state of another run, or the loss diverges.
    """
    refuse_overwriting(request.out, request.start)
    out, device = Path(request.out), find_device(request.device)
    groups, given = read_examples(Path(request.examples))
    if not groups and not given:
        raise OptionError("examples", f"'examples' has nothing to learn from: {request.examples} has no example.")
    words = None if request.wordnet is None else Words.read(Path(request.wordnet))
    source = PairSource(groups, words, given=given, given_share=request.given_share if groups else 1.0)
    torch.manual_seed(request.seed)
    if request.start is None and request.kept:
        raise OptionError("kept", "'kept' is a share of the weights of an earlier judge: name that one by 'start'.")
    start = None if request.start is None else Path(request.start)
    judge = open_judge(str(request.base_model), layers=request.layers, start=start).to(device)
    tokenizer = open_tokenizer(find_model(str(request.base_model)).folder / "tokenizer.json")
    steps = max(1, math.ceil(request.pairs / request.batch_size))
    objective = JudgeObjective(judge, source, tokenizer, request, steps=steps)
    before = [one.detach().cpu().clone() for one in judge.parameters()]
    done = TrainingLoop(
        name="judge",
        objective=objective,
        steps=steps,
        folder=out / "training",
        resume=not request.restart,
        save_seconds=request.save_seconds,
        save_every=steps,
    ).run()
    if done == steps:
        judge = judge.cpu().float()
        keep(judge, before, request.kept)
        write(judge, out, objective.shown())
        write_atomically(out / "README.md", _card(request, judge, len(given), sum(len(of) for of, _ in groups)))
    n_given = sum(map(len, given))
    return JudgeResult(out, done, sum(len(of) for of, _ in groups), n_given)


def write(judge: Judge, out: Path, pairs: Sequence[tuple[Tensor, Tensor]]) -> None:
    """Write a judge's weights and its graph; `pairs` as for `write_judge`."""
    from safetensors.torch import save_file

    out.mkdir(parents=True, exist_ok=True)
    save_file({name: tensor.contiguous() for name, tensor in judge.state_dict().items()}, out / JUDGE)
    write_judge(judge, out / GRAPH, pairs)


def _card(request: JudgeRequest, judge: Judge, n_sets: int, n_groups: int) -> str:
    """What the judge is, for those who find its folder."""
    of_wordnet = "" if request.wordnet is None else ", with differences made of WordNet's words"
    return (
        f"# A judge of two names\n\n`{GRAPH}` reads two names and says how sure it is that they name one thing "
        f"(`pearl_qdrant.encoder.judge.NameJudge`). It reads the tokens of the encoder `{request.base_model}`, of "
        f"whose first {len(judge.layers)} layers it is made.\n\nIt learnt {request.pairs:,} pairs of {n_groups:,} "
        f"entities and {n_sets:,} sets of mentions{of_wordnet}; seed {request.seed}, {request.batch_size} pairs a "
        f"step, learning rate {request.learning_rate:g}. Measure it on what it did not learn from.\n"
    )


@dataclass(frozen=True, slots=True)
class JudgeBatch:
    """Pairs of similar length: tokens and parts, (b, t), and whether both are names of one thing, (b,)."""

    ids: Tensor
    part: Tensor
    same: Tensor


class JudgeObjective(Objective):
    """Binary cross-entropy over pairs that a source draws, of a judge that gets the layers that it lacks."""

    record = LossRecord
    clip = 1.0

    def __init__(self, judge: Judge, source: PairSource, tokenizer: Any, request: JudgeRequest, *, steps: int) -> None:
        self.network: Judge = judge
        self._source, self._tokenizer, self._request, self._steps = source, tokenizer, request, steps
        self._special = [tokenizer.token_to_id(token) for token in ("<s>", "</s>", "<pad>")]
        self._device = next(judge.parameters()).device
        self._precision = find_precision(request.precision, self._device)
        if len(judge.layers) < request.layers:
            first = self._chunk(0)[0]
            weights = _encoder_weights(str(request.base_model))
            judge.grow(weights, request.layers, first.ids.to(self._device), first.part.to(self._device))
        new = {id(one) for one in (*judge.inner.parameters(), *judge.outer.parameters(), judge.of_name)}
        groups = [
            {"params": [one for one in judge.parameters() if id(one) not in new], "rate": 1.0},
            {"params": [one for one in judge.parameters() if id(one) in new], "rate": _HEAD_RATE},
        ]
        self.optimizer = torch.optim.AdamW(groups, lr=request.learning_rate, weight_decay=0.01, fused=True)

    def identity(self) -> Mapping[str, Any]:
        return self._request.identity()

    def rate(self, step: int, factor: float) -> float:
        done = (step - 1) / self._steps
        left = float((1.0 - done) ** 0.7)
        return self._request.learning_rate * factor * min(1.0, step / _WARM_UP) * left

    def batches(self, steps: range) -> Iterator[JudgeBatch]:
        """Each chunk is a function of the seed and its number."""
        for step in steps:
            chunk, at = divmod(step - 1, _CHUNK)
            if at == 0 or step == steps.start:
                made = self._chunk(chunk)
            yield made[at]

    def shown(self) -> list[tuple[Tensor, Tensor]]:
        """Tokens and parts of some pairs, (b, t) each."""
        return [(batch.ids, batch.part) for batch in self._chunk(0)]

    def _chunk(self, number: int) -> list[JudgeBatch]:
        rng = random.Random(f"{self._request.seed} {number}")
        size, stream = self._request.batch_size, self._source.draw(rng)
        pairs = [next(stream) for _ in range(size * _CHUNK)]
        tokens = self._tokens(pairs)
        # Sorted by length, so that there is little padding; not strictly, so that batches differ.
        order = sorted(range(len(pairs)), key=lambda i: len(tokens[i][0]) + 2 * rng.random())
        starts = list(range(0, len(order), size))
        rng.shuffle(starts)
        return [self._batch([(tokens[i], pairs[i]) for i in order[start : start + size]]) for start in starts]

    def _tokens(self, pairs: list[Pair]) -> list[Tokens]:
        begin, end, _ = self._special
        texts = list(dict.fromkeys(text for pair in pairs for text in (pair.mention, pair.name)))
        encoded = self._tokenizer.encode_batch(texts, add_special_tokens=False)
        ids = {text: one.ids for text, one in zip(texts, encoded, strict=True)}
        return [pair_tokens(ids[pair.mention], ids[pair.name], begin=begin, end=end) for pair in pairs]

    def _batch(self, rows: list[tuple[Tokens, Pair]]) -> JudgeBatch:
        ids, part = pad([tokens for tokens, _ in rows], padding=self._special[2])
        return JudgeBatch(ids, part, torch.tensor([float(pair.is_same) for _, pair in rows]))

    def backward(self, step: int, batch: JudgeBatch) -> dict[str, Tensor | float]:
        with torch.autocast(self._device.type, torch.bfloat16, enabled=self._precision == "bf16"):
            logits = self.network(batch.ids.to(self._device), batch.part.to(self._device))
        loss = nn.functional.binary_cross_entropy_with_logits(logits.float(), batch.same.to(self._device))
        loss.backward()  # type: ignore[no-untyped-call]
        return {"loss": loss.detach()}
