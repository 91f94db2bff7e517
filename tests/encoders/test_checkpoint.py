"""The checkpoint folder: a written one is read back, and a broken one is refused with a clear error."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tiny_models
from onnx import numpy_helper
from safetensors.numpy import load_file, save_file
from tiny_models import as_sentence_transformers, bert_graph, make_bert, write_json

from pearl_qdrant.encoder.character.table import read_character_table
from pearl_qdrant.encoder.checkpoint import (
    HEAD_FILE,
    ONNX_FILE,
    PEARL_JSON,
    TORCH_FILE,
    open_checkpoint,
    read_config,
    seal,
)
from pearl_qdrant.encoder.loading import find_model, list_models, load_encoder, shipped_names
from pearl_qdrant.encoder.write_checkpoint import verify
from pearl_qdrant.errors import CheckpointError, ModelError, ModelNotFoundError
from pearl_qdrant.phrase_types import PHRASE_TYPES

WEIGHTS = "model.safetensors"
DEEP = "[" * 100_000 + "]" * 100_000
DEEP_OBJECT = '{"a":' * 100_000 + "1" + "}" * 100_000


def header(text: str) -> bytes:
    """A safetensors file that has a header alone."""
    return len(text).to_bytes(8, "little") + text.encode()


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint that tests do not change."""
    return tiny_models.make_pearl(tmp_path_factory.mktemp("models") / "tiny").folder


@pytest.fixture
def folder(written: Path, tmp_path: Path) -> Path:
    """A checkpoint to break."""
    return Path(shutil.copytree(written, tmp_path / "tiny"))


def edit(path: Path, **changes: object) -> None:
    """Change fields of a JSON file without updating hashes."""
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def flipped(data: bytes) -> bytes:
    """One bit is another."""
    return data[:-1] + bytes([data[-1] ^ 1])


@pytest.mark.parametrize("name", ["tokenizer.json", ONNX_FILE, HEAD_FILE, "1_Pooling/config.json"])
@pytest.mark.parametrize(
    "damage, message",
    [
        (None, "missing"),
        (lambda data: data[:-10], "truncated: {left:,} bytes, {size:,} expected"),
        (flipped, "changed: SHA-256"),
    ],
)
def test_a_damaged_file_is_named(
    folder: Path, name: str, damage: Callable[[bytes], bytes] | None, message: str
) -> None:
    """The error says which file is missing, cut off (with both sizes), or changed by a single bit."""
    path = folder / name
    size = path.stat().st_size
    path.unlink() if damage is None else path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(CheckpointError, match=message.format(left=size - 10, size=size)) as caught:
        load_encoder(str(folder))
    assert caught.value.path == str(path)


@pytest.mark.parametrize(
    "name, content, message",
    [
        (ONNX_FILE, b"a web page, not a model", "not an ONNX graph"),
        (TORCH_FILE, b"\x80\x04\x95 a pickle", "not a safetensors"),
        (HEAD_FILE, header("[1, 2,3]"), "header cannot be read"),
        (HEAD_FILE, header(DEEP_OBJECT), "header cannot be read"),
        (HEAD_FILE, header('{"a": {"shape": [Infinity], "data_offsets": [0, 1]}}'), "header cannot be read"),
        ("config.json", b"[1]", "not a JSON object"),
        ("tokenizer.json", b"{}", "not a readable tokenizer"),
        *((PEARL_JSON, content, "pearl.json") for content in (None, b"", b"[]", b"\0")),
    ],
)
def test_a_foreign_file_is_refused(folder: Path, name: str, content: bytes | None, message: str) -> None:
    """A file of another format is refused even if its hash is right."""
    (folder / name).unlink() if content is None else (folder / name).write_bytes(content)
    if name != PEARL_JSON:
        seal(folder)
    with pytest.raises(CheckpointError, match=message) as caught:
        load_encoder(str(folder)) if name == "tokenizer.json" else verify(folder)
    assert caught.value.path == str(folder / name)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"labels": list(PHRASE_TYPES[::-1])}, "label 0 is ADJP-OTHER, not NP-CARDINAL"),
        ({"labels": list(PHRASE_TYPES[:-1])}, "its 94 labels are not the 95"),
        ({"label_counts": [1, 2]}, "2 label counts for 95"),
        ({"format_version": 2}, "needs a newer version"),
        ({"char_dim": 128, "dim": 160}, "char_dim is 128, but the file describes no character encoder"),
        ({"character": {"alphabet": ["a"]}}, "char_dim is 0, but the file describes a character encoder"),
        ({"char_dim": 8, "dim": 40, "character": {"alphabet": ["a"], "share": 1}}, "field 'character.share' is wrong"),
        ({"char_dim": 8, "dim": 41, "character": {"alphabet": ["a"]}}, r"dim 41 is not phrase_dim 32 \+ char_dim 8"),
        ({"dim": 33}, "dim 33 is not phrase_dim 32"),
        ({"pooling": "max"}, "field 'pooling' is wrong"),
        ({"files": {"../x": {"sha256": "0" * 64, "bytes": 0}}}, "not a path inside the folder"),
        ({"files": {}}, "does not list config.json"),
        ({"weights_hash": ""}, "no weights_hash"),
    ],
)
def test_an_inconsistent_pearl_json_is_refused(folder: Path, changes: dict[str, object], message: str) -> None:
    """pearl.json must be supported by this program, and consistent."""
    edit(folder / PEARL_JSON, **changes)
    with pytest.raises(CheckpointError, match=message):
        open_checkpoint(folder)


def save_graph(folder: Path, n_labels: int) -> None:
    """Another graph: its type head has so many labels; with none it has neither embedding nor type logits."""
    head = load_file(folder / HEAD_FILE)["type_head.weight"][:n_labels] if n_labels else None
    onnx.save(bert_graph(load_file(folder / TORCH_FILE), type_head=head), folder / ONNX_FILE)


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda folder: edit(folder / PEARL_JSON, dim=64, phrase_dim=64), "hidden_size is 32, but 64 in pearl.json"),
        (lambda folder: edit(folder / PEARL_JSON, max_length=99), "model_max_length is 16, but 99 in pearl.json"),
        (lambda folder: save_graph(folder, 0), "has no output 'embedding'"),
        (lambda folder: save_graph(folder, 10), r"'type_logits' has shape \['b', 10\], \(batch, 95\) expected"),
    ],
)
def test_shapes_that_disagree_are_refused(folder: Path, change: Callable[[Path], None], message: str) -> None:
    """All files of a checkpoint must belong to one model."""
    change(folder)
    seal(folder)
    with pytest.raises(CheckpointError, match=message):
        verify(folder)


def test_the_hash_tells_models_apart(folder: Path, tmp_path: Path) -> None:
    """A collection made through ONNX still opens after I rebuilt the weights for torch, or exported the model without
    ONNX. Two copies of one training have one hash, two trainings never.
    """
    hashes = [tiny_models.make_pearl(tmp_path / str(i), seed=seed).config.weights_hash for i, seed in enumerate((0, 1))]
    assert hashes[0] == read_config(folder).weights_hash != hashes[1]
    weights = shutil.move(folder / TORCH_FILE, tmp_path / "kept")
    shipped = seal(folder)
    assert TORCH_FILE not in shipped.files
    shutil.move(weights, folder / TORCH_FILE)
    both = seal(folder)
    assert TORCH_FILE in both.files
    assert both.weights_hash == shipped.weights_hash
    hashes = {load_encoder(str(folder), runtime=runtime).info.weights_hash for runtime in ("onnx", "torch")}
    assert hashes == {shipped.weights_hash}
    shutil.rmtree(folder / "onnx")
    assert seal(folder).weights_hash != shipped.weights_hash
    assert seal(folder, weights_hash=shipped.weights_hash).weights_hash == shipped.weights_hash
    assert verify(folder).onnx_path is None


def test_models_are_found_by_name_and_folder(written: Path) -> None:
    """A shipped name and a folder both name a model."""
    models_dir = written.parent
    assert shipped_names(models_dir) == ["tiny"]
    assert [config.name for config in list_models(models_dir)] == ["tiny"]
    assert find_model("tiny", models_dir=models_dir).folder == written
    assert find_model(str(written), models_dir=models_dir).folder == written


def test_an_unknown_name_is_answered_with_near_ones(written: Path) -> None:
    """The error for a typo suggests similar names."""
    with pytest.raises(ModelNotFoundError, match=r"No model 'tinny'.*Did you mean tiny\?"):
        find_model("tinny", models_dir=written.parent)
    with pytest.raises(ModelNotFoundError, match=r"Shipped models, which need no network: tiny\."):
        find_model("/no/such/folder", models_dir=written.parent)
    with pytest.raises(ModelNotFoundError, match="need no network: none"):
        find_model("", models_dir=written / "nowhere")


@pytest.fixture
def hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of a hub that cannot be reached."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


def test_a_hub_id_without_network_says_what_to_do(hub_cache: Path, written: Path) -> None:
    """Offline, the error says which models are available."""
    with pytest.raises(ModelNotFoundError, match=r"not in the local cache.*need no network: tiny") as caught:
        find_model("owner/name@0123abc", models_dir=written.parent)
    assert caught.value.model == "owner/name@0123abc"
    assert not hub_cache.exists() or not list(hub_cache.rglob("*.safetensors"))


def test_a_hub_id_is_served_from_the_cache(hub_cache: Path, written: Path) -> None:
    """A downloaded model needs no network, also at a revision."""
    commit = "0123456789abcdef0123456789abcdef01234567"
    repo = hub_cache / "models--owner--name"
    shutil.copytree(written, repo / "snapshots" / commit)
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text(commit)
    for name in ("owner/name", f"owner/name@{commit}"):
        encoder = load_encoder(name)
        assert encoder.info.name == name
        assert encoder.encode(["aspirin"]).encodable.all()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plain encoder with weights for torch, the same as a graph, and a checkpoint."""
    root = tmp_path_factory.mktemp("models")
    plain = as_sentence_transformers(make_bert(root / "torch"), prompt="query: ")
    graph = Path(shutil.copytree(plain, root / "onnx"))
    (graph / "onnx").mkdir()
    onnx.save(bert_graph(load_file(graph / WEIGHTS), type_head=None), graph / ONNX_FILE)
    (graph / WEIGHTS).unlink()
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
@pytest.mark.parametrize("content", ["", DEEP, "[1]"], ids=lambda text: text[:6] or "empty")
def test_an_invalid_settings_file_is_refused(copy: Callable[[str], Path], name: str, content: str) -> None:
    """Invalid JSON, endlessly nested JSON and JSON of another kind are reported for every file that is read."""
    folder = copy("onnx")
    (folder / name).write_text(content)

    assert refusal(folder).path == str(folder / name)


@pytest.mark.parametrize(
    "name, field, value",
    [
        ("config.json", "max_position_embeddings", [48]),
        ("sentence_bert_config.json", "do_lower_case", [True]),
        ("tokenizer_config.json", "model_max_length", {"tokens": 16}),
        ("config_sentence_transformers.json", "prompts", {"query": ["query: "]}),
        ("config_sentence_transformers.json", "default_prompt_name", ["query"]),
        ("1_Pooling/config.json", "pooling_mode", 7),
    ],
)
def test_a_setting_of_the_wrong_type_is_named(
    copy: Callable[[str], Path], name: str, field: str, value: object
) -> None:
    """The message names the file and the field."""
    folder = copy("onnx")
    edit(folder / name, **{field: value})

    error = refusal(folder)
    assert error.path == str(folder / name)
    assert f"field '{field}" in str(error)


def test_settings_written_in_another_way_are_understood(copy: Callable[[str], Path]) -> None:
    """A number as text, a flag as a number, and null have their obvious meaning."""
    folder = copy("onnx")
    for field, value in (("do_lower_case", None), ("do_lower_case", 1), ("max_seq_length", "16")):
        edit(folder / "sentence_bert_config.json", **{field: value})
        assert load_encoder(str(folder), device="cpu").encode(["new york"]).encodable.all()


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"max_position_embeddings": 4, "pad_token_id": 3, "model_type": "roberta"}, "leave no room"),
        ({"model_type": None}, "transformers cannot load it"),
        ({"vocab_size": 10**9}, "describes other shapes than the weights"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers is 1,000,000,000"),
    ],
)
def test_a_config_that_does_not_match_the_weights_is_refused(
    copy: Callable[[str], Path], changes: dict[str, object], message: str
) -> None:
    """A wrong config.json gives an error, and builds nothing huge."""
    folder = copy("torch")
    edit(folder / "config.json", **changes)

    assert message in str(refusal(folder))


def test_modules_must_be_inside_the_folder(copy: Callable[[str], Path]) -> None:
    """A modules.json cannot name files elsewhere."""
    folder = copy("onnx")
    for path in ("../elsewhere", "/etc", "a\0b"):
        write_json(folder / "modules.json", [{"type": "models.Transformer", "path": path}])
        assert "not a path inside the folder" in str(refusal(folder))


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[: len(data) // 2],
        lambda data: data[:8] + b"}" + data[9:],
        *(lambda _: b"", lambda _: b"\x08" + bytes(7) + b"[" * 8),
    ],
)
def test_damaged_weights_are_refused(copy: Callable[[str], Path], damage: Callable[[bytes], bytes]) -> None:
    """A truncated or overwritten model.safetensors is an error, not a traceback."""
    folder = copy("torch")
    (folder / WEIGHTS).write_bytes(damage((folder / WEIGHTS).read_bytes()))

    assert "cannot load it" in str(refusal(folder))


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
    split = {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}
    edit(path, pre_tokenizer=split)
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
