"""Damaged, mixed-up and hostile models: each is refused with an error that names the faulty file."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from safetensors.numpy import load_file, save_file
from tiny_models import as_sentence_transformers, bert_graph, make_bert, make_pearl, write_json

from pearl_qdrant.encoder.character.table import read_character_table
from pearl_qdrant.encoder.checkpoint import ONNX_FILE, safetensors_shapes
from pearl_qdrant.encoder.loading import load_encoder
from pearl_qdrant.errors import CheckpointError, ModelError

WEIGHTS = "model.safetensors"
DEEP = "[" * 100_000 + "]" * 100_000
DEEP_OBJECT = '{"a":' * 100_000 + "1" + "}" * 100_000


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plain encoder with weights for torch, the same as a graph, and a checkpoint."""
    root = tmp_path_factory.mktemp("models")
    plain = as_sentence_transformers(make_bert(root / "torch"), prompt="query: ")
    graph = Path(shutil.copytree(plain, root / "onnx"))
    (graph / "onnx").mkdir()
    onnx.save(bert_graph(load_file(graph / WEIGHTS), type_head=None), graph / ONNX_FILE)
    (graph / WEIGHTS).unlink()
    make_pearl(root / "pearl")
    return root


@pytest.fixture
def copy(made: Path, tmp_path: Path) -> Callable[[str], Path]:
    """Makes a copy of one of them to damage."""
    return lambda kind: Path(shutil.copytree(made / kind, tmp_path / kind))


def refusal(folder: Path, **words: Any) -> CheckpointError:
    """The error of loading a model and encoding with it."""
    with pytest.raises(CheckpointError) as caught:
        load_encoder(str(folder), device="cpu", **words).encode(["new york", "aspirin"])
    return caught.value


@pytest.mark.parametrize(
    "name", ["config.json", "sentence_bert_config.json", "1_Pooling/config.json", "modules.json",
             "tokenizer_config.json", "config_sentence_transformers.json"],
)  # fmt: skip
@pytest.mark.parametrize(
    "content", ["", "{", DEEP, DEEP_OBJECT, "[1]", '"text"', "1", "null"], ids=lambda text: text[:6] or "empty"
)
def test_an_invalid_settings_file_is_refused(copy: Callable[[str], Path], name: str, content: str) -> None:
    """Invalid JSON, endlessly nested JSON and JSON of another kind are reported for every file that is read."""
    folder = copy("onnx")
    (folder / name).write_text(content)

    assert refusal(folder).path == str(folder / name)


@pytest.mark.parametrize(
    "name, field, value",
    [
        ("config.json", "max_position_embeddings", [48]),
        ("config.json", "model_type", {"name": "bert"}),
        ("config.json", "pad_token_id", "none"),
        ("sentence_bert_config.json", "max_seq_length", "many"),
        ("sentence_bert_config.json", "do_lower_case", [True]),
        ("tokenizer_config.json", "model_max_length", {"tokens": 16}),
        ("config_sentence_transformers.json", "prompts", 3),
        ("config_sentence_transformers.json", "prompts", {"query": ["query: "]}),
        ("config_sentence_transformers.json", "default_prompt_name", ["query"]),
        ("1_Pooling/config.json", "pooling_mode", 7),
        ("1_Pooling/config.json", "include_prompt", "perhaps"),
    ],
)
def test_a_setting_of_the_wrong_type_is_named(
    copy: Callable[[str], Path], name: str, field: str, value: object
) -> None:
    """The message names the file and the field."""
    folder = copy("onnx")
    write_json(folder / name, {**json.loads((folder / name).read_text()), field: value})

    error = refusal(folder)
    assert error.path == str(folder / name)
    assert f"field '{field}" in str(error)


@pytest.mark.parametrize("field, value", [("do_lower_case", None), ("do_lower_case", 1), ("max_seq_length", "16")])
def test_settings_written_in_another_way_are_understood(copy: Callable[[str], Path], field: str, value: object) -> None:
    """A number as text, a flag as a number, and null have their obvious meaning."""
    folder = copy("onnx")
    path = folder / "sentence_bert_config.json"
    write_json(path, {**json.loads(path.read_text()), field: value})

    assert load_encoder(str(folder), device="cpu").encode(["new york"]).encodable.all()


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"max_position_embeddings": 4, "pad_token_id": 3, "model_type": "roberta"}, "leave no room"),
        ({"model_type": None}, "transformers cannot load it"),
        ({"num_attention_heads": 0}, "transformers cannot load it"),
        ({"hidden_size": "wide"}, "transformers cannot load it"),
        ({"vocab_size": 10**9}, "describes other shapes than the weights"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers is 1,000,000,000"),
    ],
)
def test_a_config_that_does_not_match_the_weights_is_refused(
    copy: Callable[[str], Path], changes: dict[str, object], message: str
) -> None:
    """A wrong config.json gives an error, and builds nothing huge."""
    folder = copy("torch")
    path = folder / "config.json"
    write_json(path, {**json.loads(path.read_text()), **changes})

    assert message in str(refusal(folder))


@pytest.mark.parametrize("path", ["../elsewhere", "/etc", "a\0b"])
def test_modules_must_be_inside_the_folder(copy: Callable[[str], Path], path: str) -> None:
    """A modules.json cannot name files elsewhere."""
    folder = copy("onnx")
    write_json(folder / "modules.json", [{"type": "models.Transformer", "path": path}])

    assert "not a path inside the folder" in str(refusal(folder))


def _cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


def _shuffled_header(data: bytes) -> bytes:
    return data[:8] + b"}" + data[9:]


@pytest.mark.parametrize("damage", [_cut, _shuffled_header, lambda _: b"", lambda _: b"\x08" + bytes(7) + b"[" * 8])
def test_damaged_weights_are_refused(copy: Callable[[str], Path], damage: Callable[[bytes], bytes]) -> None:
    """A truncated or overwritten model.safetensors is an error, not a traceback."""
    folder = copy("torch")
    (folder / WEIGHTS).write_bytes(damage((folder / WEIGHTS).read_bytes()))

    assert "cannot load it" in str(refusal(folder))


@pytest.mark.parametrize("header", [DEEP_OBJECT, '{"a": {"shape": [Infinity], "data_offsets": [0, 1]}}'])
def test_a_damaged_header_of_weights_is_refused(tmp_path: Path, header: str) -> None:
    """The header of a safetensors file is not trusted."""
    path = tmp_path / "x.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header.encode())

    with pytest.raises(CheckpointError, match="its header cannot be read"):
        safetensors_shapes(path)


@pytest.mark.parametrize("kind", ["torch", "onnx"])
def test_a_tokenizer_of_a_larger_model_is_refused(copy: Callable[[str], Path], tmp_path: Path, kind: str) -> None:
    """Token ids beyond the embeddings are found at loading, not at the first name that has one."""
    folder = copy(kind)
    shutil.copy(make_bert(tmp_path / "larger", words=50) / "tokenizer.json", folder)

    with pytest.raises(CheckpointError, match="another model"):
        load_encoder(str(folder), device="cpu")


@pytest.mark.parametrize("kind", ["torch", "onnx"])
def test_a_token_that_the_model_does_not_know_is_reported(copy: Callable[[str], Path], kind: str) -> None:
    """A single huge id passes the check at loading, and is reported with the name that has it."""
    folder = copy(kind)
    path = folder / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    tokenizer["model"]["vocab"]["aspirin"] = 999_999
    write_json(path, tokenizer)

    assert "up to id 999999" in str(refusal(folder))


def test_a_regular_expression_that_takes_too_long_is_reported(copy: Callable[[str], Path]) -> None:
    """A tokenizer panics if its regular expression takes too many steps; that becomes a normal error."""
    folder = copy("onnx")
    path = folder / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    tokenizer["pre_tokenizer"] = {
        "type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False
    }  # fmt: skip
    write_json(path, tokenizer)
    encoder = load_encoder(str(folder), device="cpu", prefix="")

    assert encoder.encode(["aspirin"]).encodable.all()
    with pytest.raises(CheckpointError, match=r"cannot tokenise one of 1 names.*retry-limit") as caught:
        encoder.encode(["a" * 100 + "!"])
    assert caught.value.path == str(path)


@pytest.mark.parametrize(
    "model",
    [
        {"type": "WordPiece", "vocab": {"a": 4_000_000_000}},
        {"type": "WordPiece", "vocab": {"a": -1, "b": 0}},
        {"type": "Unigram", "vocab": [["\u2581a", 0], ["<0xZZ>", 0]]},
        {"type": "Unigram", "vocab": [[], ["\u2581a", 0]]},
        *(None, "", "{}", "[]", '{"model": {"vocab": {}}}', '{"model": {"vocab": 3}}'),
    ],
)
def test_an_invalid_vocabulary_is_refused(tmp_path: Path, model: dict[str, object] | str | None) -> None:
    """Ids too large for an array, invalid bytes, and a missing or invalid tokenizer.json are refused."""
    path = tmp_path / "tokenizer.json"
    if isinstance(model, dict):
        write_json(path, {"model": model, "pre_tokenizer": {"type": "Metaspace"}})
    elif model is not None:
        path.write_text(model)

    with pytest.raises(CheckpointError, match=r"tokenizer\.json: "):
        read_character_table(path)


def test_a_graph_that_cannot_run_is_refused(copy: Callable[[str], Path]) -> None:
    """A graph may load and fail at the first name: here its table of positions has two rows."""
    folder = copy("onnx")
    graph = onnx.load(folder / ONNX_FILE)
    (positions,) = [t for t in graph.graph.initializer if t.dims == [48, 32]]
    positions.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(positions)[:2], positions.name))
    onnx.save(graph, folder / ONNX_FILE)

    error = refusal(folder)
    assert error.path == str(folder / ONNX_FILE)
    assert "cannot run" in str(error)


@pytest.mark.parametrize("kind", ["torch", "onnx"])
def test_weights_that_give_infinite_vectors_are_reported(copy: Callable[[str], Path], kind: str) -> None:
    """One damaged bit can make a weight infinite; such vectors never reach a store or a ranking."""
    folder = copy(kind)
    weights = load_file((folder if kind == "torch" else copy("torch")) / WEIGHTS)
    weights["encoder.layer.1.output.LayerNorm.weight"][:] = np.inf
    if kind == "torch":
        save_file(weights, folder / WEIGHTS, metadata={"format": "pt"})
    else:
        onnx.save(bert_graph(weights, type_head=None), folder / ONNX_FILE)

    with pytest.raises(ModelError, match="not finite"):
        load_encoder(str(folder), device="cpu").encode(["new york"])


def test_a_limit_below_the_special_tokens_is_the_models_fault(copy: Callable[[str], Path]) -> None:
    """A wrong limit in a folder is an error of the model, not of an argument."""
    folder = copy("onnx")
    path = folder / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    special = tokenizer["post_processor"]["single"]
    tokenizer["post_processor"]["single"] = special[:1] * 20 + special
    write_json(path, tokenizer)

    assert "leaves no room beside its 22 special tokens" in str(refusal(folder))
