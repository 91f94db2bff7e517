"""Joint models: the cosine is the members' mean, each reads its scripts, and nothing is joined that changed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from cli_runner import Run
from tiny_models import NAMES, as_sentence_transformers, make_bert, make_pearl

from pearl_qdrant.encoder.describe import describe_model
from pearl_qdrant.encoder.fastembed_model import text_embedding
from pearl_qdrant.encoder.find_model import list_models, shipped_names
from pearl_qdrant.encoder.joint import (
    JOINT_FILE,
    JOINT_JSON,
    JointConfig,
    Member,
    mostly_latin,
    read_joint,
    write_joint,
)
from pearl_qdrant.encoder.loading import load_encoder
from pearl_qdrant.encoder.protocol import FloatArray
from pearl_qdrant.errors import CheckpointError, ModelError, ModelNotFoundError

SHARE = 0.3
RUSSIAN = "\u041c\u043e\u0441\u043a\u0432\u0430"


def join(
    folder: Path, first: str, second: str, *, dim: int | None = None, projection: FloatArray | None = None
) -> Path:
    """A joint model of two, the first for Latin letters alone; by default nothing is projected away."""
    infos = [load_encoder(model, device="cpu").info for model in (first, second)]
    members = tuple(
        Member(model=info.name, weights_hash=info.weights_hash, dim=info.dim, share=share, latin=latin)
        for info, share, latin in zip(infos, (SHARE, 1 - SHARE), (True, False), strict=True)
    )
    wide = sum(member.dim for member in members)
    projection = np.eye(wide, dtype=np.float32) if projection is None else projection
    write_joint(folder, JointConfig(name=folder.name, dim=dim or wide, members=members), projection)
    return folder


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Two checkpoints with type heads."""
    base = tmp_path_factory.mktemp("members")
    return str(make_pearl(base / "one", seed=1).folder), str(make_pearl(base / "two", seed=2).folder)


@pytest.fixture
def joint(tmp_path: Path, members: tuple[str, str]) -> Path:
    """Both of them joined."""
    return join(tmp_path / "joint", *members)


def test_the_cosine_is_the_mean_of_the_members_by_share(joint: Path, members: tuple[str, str]) -> None:
    """Vectors have length 1, and their cosines are the members', weighted."""
    names = [name for name in NAMES if load_encoder(members[0]).encode([name]).encodable.all()][:6]
    found = load_encoder(str(joint)).encode(names)
    one, two = (load_encoder(model).encode(names).vectors for model in members)

    np.testing.assert_allclose(np.linalg.norm(found.vectors, axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(
        found.vectors @ found.vectors.T, SHARE * one @ one.T + (1 - SHARE) * two @ two.T, atol=1e-5
    )
    np.testing.assert_allclose(found.type_probabilities, load_encoder(members[0]).encode(names).type_probabilities)


def test_a_member_of_the_latin_script_does_not_read_others(joint: Path, members: tuple[str, str]) -> None:
    """A name in Cyrillic has the vector and the types of the second model alone, whatever stands beside it."""
    names = [NAMES[0], RUSSIAN]
    found, second = load_encoder(str(joint)).encode(names), load_encoder(members[1]).encode(names)
    width = second.vectors.shape[1]

    assert not found.vectors[1, :-width].any()
    np.testing.assert_allclose(found.vectors[1, -width:], second.vectors[1], atol=1e-6)
    assert found.type_probabilities is not None
    assert second.type_probabilities is not None
    np.testing.assert_array_equal(found.type_probabilities[1], second.type_probabilities[1])
    assert found.encodable[1] == second.encodable[1]


@pytest.mark.parametrize(
    "name, expected",
    [("Z\u00fcrich", True), ("TNF-\u03b1", True), ("\u03b2-catenin", True), (RUSSIAN, False), ("\u6771\u4eac JR", True),
     ("\u6771\u4eac\u5927\u5b66 A", False), ("1984", True), ("", True), ("\uff21\uff22", True)],
)  # fmt: skip
def test_the_script_of_most_letters_counts(name: str, expected: bool) -> None:
    """A Greek letter within an English name leaves it Latin."""
    assert mostly_latin(name) is expected


def test_fewer_dimensions(tmp_path: Path, members: tuple[str, str]) -> None:
    """A projection gives the vectors its width, and length 1."""
    wide = sum(load_encoder(model).info.dim for model in members)
    projection = np.linalg.qr(np.random.default_rng(0).normal(size=(wide, 5)))[0].astype(np.float32)
    encoder = load_encoder(str(join(tmp_path / "narrow", *members, dim=5, projection=projection)))

    vectors = encoder.encode(list(NAMES[:3])).vectors
    assert (encoder.info.dim, vectors.shape) == (5, (3, 5))
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)


def test_without_a_type_head_of_each_there_are_no_types(tmp_path: Path, members: tuple[str, str]) -> None:
    """A plain encoder among the members takes the types away, and the model says so."""
    encoder = load_encoder(str(join(tmp_path / "plain", members[0], str(make_bert(tmp_path / "bert")))))

    assert not encoder.info.has_head
    assert encoder.encode([NAMES[0]]).type_probabilities is None


def test_damage_and_members_that_changed_are_told(joint: Path, members: tuple[str, str], tmp_path: Path) -> None:
    """Each file is checked, and each member is the one that was joined."""
    text = (joint / JOINT_JSON).read_text("utf-8")
    config = read_joint(joint)
    other = str(make_pearl(tmp_path / "three", seed=3).folder)
    for changed, error, message in (
        ("{", CheckpointError, JOINT_JSON),
        (text.replace(members[1], other), CheckpointError, "which is another model now"),
        (text.replace(members[1], "nobody-knows-this"), ModelNotFoundError, "nobody-knows-this"),
        (text.replace(config.projection_sha256, "0" * 64), CheckpointError, "another SHA-256"),
        (text.replace(f'"dim": {config.dim}', f'"dim": {config.dim + 1}'), CheckpointError, "expected"),
    ):
        (joint / JOINT_JSON).write_text(changed, "utf-8")
        with pytest.raises(error, match=message):
            load_encoder(str(joint))
    (joint / JOINT_JSON).write_text(text, "utf-8")
    (joint / JOINT_FILE).unlink()
    with pytest.raises(CheckpointError, match="missing or unreadable"):
        load_encoder(str(joint))


def test_what_needs_weights_of_its_own_names_the_members(joint: Path, members: tuple[str, str], tmp_path: Path) -> None:
    """Fastembed and training refuse a joint model, and say what to take."""
    from training.networks.checkpoints import open_base_model
    from training.options import RefreshRequest
    from training.refresh import refresh_model
    from training.ulr.train_ulr import open_ulr_base

    for call in (
        lambda: text_embedding(str(joint)),
        lambda: open_base_model(str(joint), name="a"),
        lambda: open_ulr_base(str(joint), pooling=None, seed=0),
    ):
        with pytest.raises(ModelError, match="joins others") as told:
            call()
        assert members[0] in str(told.value)
    request = RefreshRequest(base=tmp_path / "base.tsv", out=tmp_path / "out", model=str(joint))
    with pytest.raises(ModelError, match="You can refresh"):
        refresh_model(request)
    assert not (tmp_path / "out.work").exists()


def test_members_keep_their_prefix_and_pooling(tmp_path: Path, members: tuple[str, str]) -> None:
    """What a manifest says of the joint model is not passed to its members; other values are refused."""
    plain = as_sentence_transformers(make_bert(tmp_path / "bert"), pooling="cls", prompt="query: ")
    folder = str(join(tmp_path / "mixed", members[0], str(plain)))
    encoder = load_encoder(folder)

    again = load_encoder(folder, pooling=encoder.info.pooling, prefix=encoder.info.prefix)
    np.testing.assert_array_equal(again.encode(NAMES[:3]).vectors, encoder.encode(NAMES[:3]).vectors)
    with pytest.raises(ModelError, match="Omit both options"):
        load_encoder(folder, prefix="query: ")
    with pytest.raises(ModelError, match="Omit both options"):
        load_encoder(folder, pooling="cls")


def test_what_cannot_be_joined(joint: Path, members: tuple[str, str], tmp_path: Path) -> None:
    """Neither a joint model, nor models of which none reads every script."""
    with pytest.raises(ModelError, match=r"joins others .* You can join"):
        load_encoder(str(join(tmp_path / "nested", str(joint), members[1])))
    text = (joint / JOINT_JSON).read_text("utf-8")
    (joint / JOINT_JSON).write_text(text.replace('"latin": false', '"latin": true'), "utf-8")
    with pytest.raises(CheckpointError, match="reads Latin letters alone"):
        load_encoder(str(joint))


def test_an_error_tells_the_place_of_a_name(joint: Path) -> None:
    """Of all names that were given, whichever script they have."""
    with pytest.raises(ValueError, match="name 2 has a lone surrogate"):
        load_encoder(str(joint)).encode([RUSSIAN, RUSSIAN, "x\ud800"])


def test_a_member_in_the_folder_goes_first(joint: Path, members: tuple[str, str]) -> None:
    """A joint model with its members beside it needs nothing else."""
    expected = load_encoder(str(joint)).encode(NAMES[:4]).vectors
    text = (joint / JOINT_JSON).read_text("utf-8")
    for model, name in zip(members, ("one", "two"), strict=True):
        shutil.copytree(model, joint / name)
        text = text.replace(json.dumps(model), json.dumps(name))
    (joint / JOINT_JSON).write_text(text, "utf-8")
    moved = joint.rename(joint.with_name("moved"))

    np.testing.assert_array_equal(load_encoder(str(moved)).encode(NAMES[:4]).vectors, expected)
    assert "one/tokenizer.json" in (describe_model(str(moved)).files or {})


@pytest.mark.slow
def test_the_shipped_model_can_be_exported_for_torch(run: Run, tmp_path: Path) -> None:
    """Each member is rebuilt within the folder, and the hash stays."""
    done = run("models", "export", "pearl-mini", str(tmp_path / "out"), "--torch")
    both = [load_encoder(str(tmp_path / "out"), runtime=one, device="cpu") for one in ("torch", "onnx")]
    one, two = (encoder.encode(["Moscow", RUSSIAN]).vectors for encoder in both)

    assert done.status == 0, done.err
    assert {encoder.info.weights_hash for encoder in both} == {load_encoder("pearl-mini").info.weights_hash}
    assert np.einsum("ij,ij->i", one, two).min() > 0.995


def test_the_command_line_lists_and_shows_it(run: Run, joint: Path, members: tuple[str, str]) -> None:
    """`models list` has the shipped ones, `models show` the files of the members."""
    assert {"pearl-mini", "pearl-mini-en", "pearl-mini-world"} == set(shipped_names())
    assert [config.name for config in list_models()] == shipped_names()
    listed, shown = run("models", "list"), run("models", "show", str(joint), "--json")

    assert "pearl-mini  384 dim  int8" in listed.out
    assert json.loads(shown.out)["files"].keys() >= {JOINT_FILE, f"{members[0]}/tokenizer.json"}
    assert describe_model(str(joint)).info.dim == read_joint(joint).dim


def test_equal_parts_give_the_same_hash(joint: Path, members: tuple[str, str], tmp_path: Path) -> None:
    """The hash that manifests store tells other members, shares and projections apart."""
    again = read_joint(join(tmp_path / "again", *members))
    swapped = read_joint(join(tmp_path / "swapped", members[1], members[0]))

    assert again.weights_hash == read_joint(joint).weights_hash != swapped.weights_hash
