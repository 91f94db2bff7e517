"""Names to vectors and phrase types: both runtimes, plain encoders, unusual names. What ONNX Runtime writes beside our
work: nothing.
"""

from __future__ import annotations

import gc
import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import onnx
import pytest
import tiny_models
from encoder_cases import ODD_NAMES, cosines
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file
from tiny_models import DIM, NAMES

from pearl_qdrant.encoder import batching, judge
from pearl_qdrant.encoder.loading import MODELS_DIR, load_encoder, shipped_names
from pearl_qdrant.encoder.protocol import Encoder, predict_types, type_marginals
from pearl_qdrant.encoder.runtime import onnx_runtime
from pearl_qdrant.errors import CheckpointError, DeviceError, ModelError
from pearl_qdrant.phrase_types import ENTITY_TYPES, LEXICAL_CLASSES, PHRASE_TYPES
from pearl_qdrant.settings import DEFAULT_MODEL

GOLDEN: dict[str, dict[str, tuple[float, ...]]] = {
    "pearl-mini": {
        "The New York Times": (-0.0252, 0.0598, 0.0379, 0.0133, 0.0183),
        "heart attack": (0.0512, 0.0056, -0.0474, 0.0006, 0.0364),
        "\u041c\u043e\u0441\u043a\u0432\u0430": (-0.0289, 0.1153, -0.0236, 0.0116, -0.0053),
    }
}
"""The first five dimensions by shipped model and name; to be made again with each model that ships."""


# Names of words that the tiny tokenizers know, of the whole of Unicode, and of nothing but space.
names_of_all_kinds = st.lists(
    st.one_of(
        st.sampled_from(NAMES),
        st.text("abc xyz.-1", max_size=40),
        st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
    ),
    min_size=1,
    max_size=12,
)


@pytest.mark.parametrize("runtime", ["onnx", "torch", "plain"])
@settings(max_examples=12, deadline=None, derandomize=True)
@given(names=names_of_all_kinds, seed=st.integers(0, 99))
def test_a_vector_does_not_depend_on_other_names(
    encoders: dict[str, Encoder], runtime: str, names: list[str], seed: int
) -> None:
    """Padding, batch composition and order do not change the vector of a name."""
    encoder = encoders[runtime]
    together = encoder.encode(names)
    alone = np.concatenate([encoder.encode([name]).vectors for name in names])
    assert cosines(together.vectors, alone).min() >= 0.9999
    order = np.random.default_rng(seed).permutation(len(names))
    shuffled = encoder.encode([names[i] for i in order])
    assert cosines(together.vectors[order], shuffled.vectors).min() >= 0.9999
    assert (together.encodable[order] == shuffled.encodable).all()


@settings(max_examples=12, deadline=None, derandomize=True)
@given(names=names_of_all_kinds)
def test_torch_and_onnx_agree(encoders: dict[str, Encoder], names: list[str]) -> None:
    """A base ingested on a GPU can be queried on a CPU."""
    onnx_result, torch_result = encoders["onnx"].encode(names), encoders["torch"].encode(names)
    assert cosines(onnx_result.vectors, torch_result.vectors).min() >= 0.9999
    assert onnx_result.type_probabilities is not None
    assert torch_result.type_probabilities is not None
    np.testing.assert_allclose(onnx_result.type_probabilities, torch_result.type_probabilities, atol=1e-4)
    assert (onnx_result.encodable == torch_result.encodable).all()


def test_encoder_and_judge_share_what_they_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The shipped encoder, with a prefix too, and the judge open one tokenizer and each graph once: 150 MB less."""
    opened: list[Path] = []

    def counting(module: ModuleType, name: str) -> None:
        plain = getattr(module, name)
        monkeypatch.setattr(module, name, lambda path: opened.append(path) or plain(path))

    counting(batching, "open_tokenizer")
    counting(onnx_runtime, "open_session")
    counting(judge, "open_session")
    gc.collect()
    encoders = [load_encoder(DEFAULT_MODEL), load_encoder(DEFAULT_MODEL, prefix="query: ")]
    reader = judge.NameJudge(MODELS_DIR / DEFAULT_MODEL)

    assert len(opened) == len(set(opened)), opened
    assert all(one.encode(["heart attack"]).encodable.all() for one in encoders)
    assert reader.scores([("heart attack", "heart attacks")]).shape == (1,)


def test_a_model_that_was_replaced_is_read_anew(model: Path, tmp_path: Path) -> None:
    """What is shared belongs to the files as they are now, also while an encoder of the earlier ones is in use."""
    folder = tmp_path / "model"
    shutil.copytree(model, folder)
    before = load_encoder(str(folder), device="cpu")
    shutil.rmtree(folder)
    shutil.copytree(MODELS_DIR / DEFAULT_MODEL, folder)
    names = ["heart attack", "Kraków"]
    wanted = load_encoder(DEFAULT_MODEL, device="cpu").encode(names).vectors

    np.testing.assert_array_equal(load_encoder(str(folder), device="cpu").encode(names).vectors, wanted)
    assert before.encode(names).vectors.shape == (2, before.info.dim)


@pytest.mark.parametrize("runtime", ["onnx", "torch", "plain"])
def test_properties_of_encoded_names(encoders: dict[str, Encoder], runtime: str) -> None:
    """Vectors have length one or are zero, probabilities sum to one, and unseen labels have probability zero."""
    encoded = encoders[runtime].encode([*NAMES, *ODD_NAMES, "", " \t\n"])
    assert encoded.vectors.shape == (len(NAMES) + len(ODD_NAMES) + 2, DIM)
    assert encoded.vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(encoded.vectors, axis=1), encoded.encodable, atol=1e-5)
    assert not encoded.encodable[-2:].any()
    assert encoders[runtime].encode([]).vectors.shape == (0, DIM)
    assert encoders[runtime].info.has_head == (runtime != "plain")
    if runtime == "plain":
        assert encoded.type_probabilities is None
        return
    assert encoded.type_probabilities is not None
    np.testing.assert_allclose(encoded.type_probabilities.sum(axis=1), 1, atol=1e-5)
    assert (encoded.type_probabilities[encoded.encodable, -1] == 0).all()


@pytest.mark.parametrize("name", ["🎉🎉", "ᚠᚢᚦ", "\x00", "[SEP]", " "])
def test_a_name_of_unknown_tokens_has_no_vector(
    folders: dict[str, Path], encoders: dict[str, Encoder], name: str
) -> None:
    """Two emoji never link to each other, with WordPiece or Unigram, with or without a prefix. A byte-level tokenizer
    encodes everything, and distinguishes two emoji.
    """
    for family in ("bert", "albert"):
        for prefix in ("", "the city: "):
            encoded = load_encoder(str(folders[family]), prefix=prefix).encode([name, "aspirin"])
            assert encoded.encodable.tolist() == [False, True], (family, prefix)
            assert not encoded.vectors[0].any()
    encoded = encoders["plain"].encode(["😀", "🎉"])
    assert encoded.encodable.all()
    assert cosines(encoded.vectors[:1], encoded.vectors[1:])[0] < 0.9999


def test_what_is_no_part_of_a_name(encoders: dict[str, Encoder]) -> None:
    """Space around a name and text beyond the maximum length of the model change nothing, and cost nothing. An error
    says which name is broken, and where; a string is not treated as a list of letters.
    """
    with pytest.raises(ValueError, match=r"name 1 has a lone surrogate \('\\ud800' at character 2\)"):
        encoders["onnx"].encode(["fine", "ab\ud800c"])
    with pytest.raises(TypeError, match=r"pass \['aspirin'\]"):
        encoders["onnx"].encode("aspirin")
    names = ["aspirin", "  aspirin\n", "heart attack " * 20, "heart attack " * 100_000]
    vectors = encoders["onnx"].encode(names).vectors
    assert (vectors[0] == vectors[1]).all()
    assert cosines(vectors[2:3], vectors[3:])[0] >= 0.9999


@pytest.mark.parametrize("family, pooling", [("bert", "cls"), ("roberta", "mean"), ("albert", "cls")])
def test_vectors_equal_those_of_sentence_transformers(folders: dict[str, Path], family: str, pooling: str) -> None:
    """A model that I know from sentence-transformers gives the same vectors here."""
    import sentence_transformers

    folder = folders[family].parent / f"{family}-{pooling}"
    shutil.copytree(folders[family], folder)
    prompt = "the post: " if pooling == "cls" else ""
    tiny_models.as_sentence_transformers(folder, pooling=pooling, prompt=prompt)
    encoder = load_encoder(str(folder), precision="fp32")
    assert (encoder.info.pooling, encoder.info.prefix) == (pooling, prompt)
    names = [*NAMES, "heart attack " * 20]
    reference = sentence_transformers.SentenceTransformer(str(folder), device="cpu").encode(
        names, normalize_embeddings=True, show_progress_bar=False
    )
    np.testing.assert_allclose(encoder.encode(names).vectors, reference, atol=1e-5)


def test_other_tools_give_the_same_vectors(folders: dict[str, Path], encoders: dict[str, Encoder]) -> None:
    """A PEARL model works in sentence-transformers; fastembed has tests of its own (`test_fastembed.py`)."""
    import sentence_transformers

    folder = str(folders["pearl"])
    model = sentence_transformers.SentenceTransformer(folder, device="cpu")
    reference = model.encode(NAMES, show_progress_bar=False)
    np.testing.assert_allclose(encoders["onnx"].encode(NAMES).vectors, reference, atol=1e-5)


@pytest.mark.parametrize("pooling, token_types", [("mean", True), ("cls", False)])
def test_a_plain_onnx_folder_runs_without_torch(
    folders: dict[str, Path], tmp_path: Path, pooling: str, token_types: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder with onnx/model.onnx gives the same vectors as its safetensors, and is the same model."""
    folder = Path(shutil.copytree(folders["bert"], tmp_path / "bert"))
    reference = load_encoder(str(folder), pooling=pooling, precision="fp32")
    vectors = reference.encode(NAMES).vectors
    (folder / "onnx").mkdir()
    weights = load_file(folder / "model.safetensors")
    graph = tiny_models.bert_graph(weights, type_head=None, token_types=token_types)
    onnx.save(graph, folder / "onnx" / "model.onnx")
    monkeypatch.setitem(sys.modules, "torch", None)
    encoder = load_encoder(str(folder), pooling=pooling)
    assert encoder.info.runtime == "onnx"
    assert encoder.info.weights_hash == reference.info.weights_hash
    assert cosines(encoder.encode(NAMES).vectors, vectors).min() >= 0.9999


def test_a_prefix_can_be_chosen(folders: dict[str, Path], caplog: pytest.LogCaptureFixture) -> None:
    """The prefix of E5 changes the vectors and is stored in the manifest. The log says why there are no types."""
    with caplog.at_level(logging.INFO, logger="pearl_qdrant"):
        plain, prefixed = load_encoder(str(folders["bert"])), load_encoder(str(folders["bert"]), prefix="query: ")
    assert "has no type head" in caplog.text
    assert prefixed.info.prefix == "query: "
    assert cosines(plain.encode(["aspirin"]).vectors, prefixed.encode(["aspirin"]).vectors)[0] < 0.9999
    expected = plain.encode(["query: aspirin"]).vectors
    np.testing.assert_allclose(prefixed.encode(["aspirin"]).vectors, expected, atol=1e-6)


def test_bf16_is_close_to_fp32(folders: dict[str, Path], encoders: dict[str, Encoder]) -> None:
    """Half the bits change the vectors very little."""
    half = load_encoder(str(folders["pearl"]), runtime="torch", precision="bf16")
    assert half.info.precision == "bf16"
    assert cosines(half.encode(NAMES).vectors, encoders["torch"].encode(NAMES).vectors).min() >= 0.999


@pytest.mark.parametrize("width, expected", [(384, "fp32"), (768, "bf16")])
def test_a_gpu_encodes_narrow_networks_in_fp32(width: int, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Conversions cost more there than the arithmetic saves."""
    import torch

    from pearl_qdrant.encoder.runtime.torch_runtime import PearlNetwork, encoding_precision

    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    encoder = torch.nn.Module()
    encoder.config = SimpleNamespace(hidden_size=width)  # type: ignore[assignment]
    assert encoding_precision(PearlNetwork(encoder, None), "cuda:0") == expected


def test_a_missing_cuda_device_is_an_error(folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """A request for a GPU never runs silently on the CPU."""
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for device in ("cuda", "cuda:1"):
        with pytest.raises(DeviceError, match=f"Device '{device}' was requested, but torch .* finds no CUDA device"):
            load_encoder(str(folders["pearl"]), device=device)
    with pytest.raises(DeviceError, match="ONNX graphs run only on the CPU"):
        load_encoder(str(folders["pearl"]), device="cuda", runtime="onnx")
    with pytest.raises(ValueError, match="device is auto, cpu, cuda or cuda:N, not 'gpu'"):
        load_encoder(str(folders["pearl"]), device="gpu")


def test_without_torch_the_error_names_the_extra(folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """The error for a model that needs torch says what to install."""
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ModelError, match=r"torch is not installed: pip install '.*\[torch\]'"):
        load_encoder(str(folders["bert"]))
    with pytest.raises(DeviceError, match=r"torch is not installed: pip install '.*\[torch\]'"):
        load_encoder(str(folders["pearl"]), device="cuda")


def test_the_onnx_runtime_leaves_torch_alone(folders: dict[str, Path]) -> None:
    """Linking on a CPU imports neither torch nor transformers, so it starts fast."""
    program = (
        "import sys; from pearl_qdrant.encoder.loading import load_encoder\n"
        f"load_encoder({str(folders['pearl'])!r}).encode(['aspirin'])\n"
        "print([name for name in ('torch', 'transformers', 'onnx', 'fastembed') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    assert done.stderr == ""


def test_a_model_with_missing_weights_is_refused(folders: dict[str, Path], tmp_path: Path) -> None:
    """No layer ever has random weights."""
    folder = Path(shutil.copytree(folders["bert"], tmp_path / "bert"))
    weights = load_file(folder / "model.safetensors")
    del weights["encoder.layer.1.output.dense.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match=r"1 missing \['encoder.layer.1.output.dense.weight'\]"):
        load_encoder(str(folder))


def test_what_cannot_be_loaded_is_refused(folders: dict[str, Path], tmp_path: Path) -> None:
    """Weights that can run code are not opened; any other folder, and another pooling than that of the training."""
    folder = Path(shutil.copytree(folders["bert"], tmp_path / "bert"))
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match="Pickled weights"):
        load_encoder(str(folder))
    with pytest.raises(CheckpointError, match=r"neither pearl\.json nor config\.json"):
        load_encoder(str(tmp_path))
    with pytest.raises(ModelError, match="trained with mean pooling"):
        load_encoder(str(folders["pearl"]), pooling="cls")


def test_a_model_that_needs_more_steps_is_refused(folders: dict[str, Path], tmp_path: Path) -> None:
    """An unsupported module would give wrong vectors: it is an error."""
    folder = Path(shutil.copytree(folders["bert"], tmp_path / "bert"))
    tiny_models.as_sentence_transformers(folder, pooling="max")
    with pytest.raises(ModelError, match="pooling is max_tokens; supported are mean and cls"):
        load_encoder(str(folder))
    assert load_encoder(str(folder), pooling="mean").info.pooling == "mean"
    modules = [{"type": f"sentence_transformers.models.{kind}", "path": ""} for kind in ("Transformer", "Dense")]
    tiny_models.write_json(folder / "modules.json", modules)
    with pytest.raises(ModelError, match="Transformer, Dense; only"):
        load_encoder(str(folder))


def test_predicted_types_are_the_argmax_of_the_marginal() -> None:
    """The type is the most probable over all classes; the class is the most probable with that type."""
    rng = np.random.default_rng(0)
    probabilities = rng.dirichlet(np.full(len(PHRASE_TYPES), 0.1), size=200).astype(np.float32)
    predicted = predict_types(probabilities)
    for i, row in enumerate(probabilities):
        joint = dict(zip(PHRASE_TYPES, row.tolist(), strict=True))
        marginal = {t: sum(joint[f"{c}-{t}"] for c in LEXICAL_CLASSES) for t in ENTITY_TYPES}
        best = max(marginal, key=lambda t: marginal[t])
        best_class = max(LEXICAL_CLASSES, key=lambda c: joint[f"{c}-{best}"])
        assert predicted.predicted_types[i] == best
        assert predicted.lexical_classes[i] == best_class
        assert predicted.phrase_types[i] == f"{best_class}-{best}"
        assert predicted.type_probabilities[i] == pytest.approx(marginal[best], abs=1e-5)
        assert len(repr(predicted.type_probabilities[i])) <= 9  # a store reads seven digits exactly
    np.testing.assert_allclose(type_marginals(probabilities).sum(axis=1), 1, atol=1e-5)
    assert predict_types(probabilities[:0]).phrase_types == []
    with pytest.raises(ValueError, match=r"type probabilities have shape \(n, 95\), not \(200, 94\)"):
        predict_types(probabilities[:, :94])


@pytest.mark.parametrize("model", shipped_names())
def test_a_shipped_model_gives_its_golden_values(model: str) -> None:
    """The vectors of a shipped model do not change unnoticed."""
    vectors = load_encoder(model).encode(list(GOLDEN[model])).vectors
    np.testing.assert_allclose(vectors[:, :5], list(GOLDEN[model].values()), atol=1e-3)


@pytest.mark.parametrize("model", shipped_names())
def test_names_of_one_newspaper_stand_before_other_names_of_its_words(model: str) -> None:
    """The order of Figure 1 of PEARL's paper."""
    same, others = ["NYTimes", "nytimes.com", "New-York Daily Times"], ["New York Post", "New York"]
    of, *vectors = load_encoder(model).encode(["The New York Times", *same, *others]).vectors
    cosines = [float(of @ vector) for vector in vectors]
    assert min(cosines[:3]) > cosines[3] > cosines[4], cosines


ROOT = Path(__file__).resolve().parents[2]
ENCODE = f"""
from pearl_qdrant.encoder.loading import load_encoder
load_encoder({DEFAULT_MODEL!r}, device="cpu").encode(["Paris"])
"""


def written(home: Path, script: str, **environment: str) -> list[str]:
    """The files that a script leaves in an empty home."""
    home.mkdir()
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "ORT_"))}
    env = {**kept, "HOME": str(home), "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]), **environment}
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, env=env, check=True)
    return [str(path.relative_to(home)) for path in home.rglob("*") if path.is_file()]


def test_encoding_leaves_no_file_in_the_home(tmp_path: Path) -> None:
    """ONNX Runtime makes no id of the device and keeps no events for its maker."""
    assert written(tmp_path / "home", ENCODE) == []


@pytest.mark.parametrize("given", ["", "0"])
def test_a_user_who_sets_the_variable_has_it_as_set(tmp_path: Path, given: str) -> None:
    """Whoever wants that telemetry, or has set the variable to anything, decides."""
    script = "import os, pathlib, pearl_qdrant; name = repr(os.environ['ORT_DISABLE_TELEMETRY'])\n"
    script += "(pathlib.Path.home() / name).touch()"

    assert written(tmp_path / "home", script, ORT_DISABLE_TELEMETRY=given) == [repr(given)]
