"""A refreshed encoder in one call: stages, resuming, what is kept out, and the verdict."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_runner import Outcome, Run
from tiny_models import make_bert, make_pearl

from pearl_qdrant import RefreshEvents, RefreshRequest, RefreshResult, refresh_model
from pearl_qdrant.encoder.checkpoint import read_config, write_config
from pearl_qdrant.encoder.loading import load_encoder
from pearl_qdrant.errors import InputError, OptionError
from pearl_qdrant.phrase_types import PHRASE_TYPES
from training.examples.example import split_of
from training.options import STAGES, Compared
from training.refresh import verdict, write_base_files


def write_base(path: Path, n: int = 40, *, aliases: int = 2) -> Path:
    """A base of n entities, each with some aliases."""
    names = ((f"new york w{i}", "|".join((f"city {i}", f"york {i}")[:aliases])) for i in range(n))
    rows = [f"Q{i}\t{name}\tORG\t{others}\n" for i, (name, others) in enumerate(names)]
    path.write_text("id\tname\ttypes\taliases\n" + "".join(rows), encoding="utf-8")
    return path


class Killed(BaseException):
    """The process ends here."""


class Heard(RefreshEvents):
    """Keeps the stages that run; at the beginning of one the process ends, and leaves files that are cut off."""

    def __init__(self, killed_at: str = "", left: Sequence[Path] = ()) -> None:
        self.ran: list[str] = []
        self._killed_at, self._left = killed_at, left

    def stage(self, name: str, detail: str = "") -> None:
        if detail != "done already":
            self.ran.append(name)
        if name == self._killed_at:
            for path in self._left:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text("cut o")
            raise Killed


def request(bert: Path, base: Path, out: Path, **changes: Any) -> RefreshRequest:
    """A run of two steps."""
    settings: dict[str, Any] = {"steps": 2, "batch_size": 8, "device": "cpu", **changes}
    return RefreshRequest(base=base, out=out, model=str(bert), **settings)


def test_one_call_makes_a_model_and_goes_on_where_it_stopped(bert: Path, tmp_path: Path) -> None:
    """All stages run once; after an interruption only those that are left; the model encodes names."""
    base, out = write_base(tmp_path / "base.tsv"), tmp_path / "model"
    stopped, resumed = Heard("average"), Heard()
    with pytest.raises(Killed):
        refresh_model(request(bert, base, out), events=stopped)
    result = refresh_model(request(bert, base, out), events=resumed)

    assert stopped.ran == ["base", "start", "phrases", "negatives", "steps", "fit", "average"]
    assert resumed.ran == ["average", "head", "export", "measure"]
    assert (result.steps, result.entities + result.held_out, result.verdict) == (2, 40, "not measured")
    assert load_encoder(str(out)).encode(["new york"]).vectors.shape[1] == 32
    with pytest.raises(OptionError, match="other values of: batch_size"):
        refresh_model(request(bert, base, out, batch_size=4))


@pytest.fixture(scope="module")
def whole(bert: Path, tmp_path_factory: pytest.TempPathFactory) -> RefreshResult:
    """What a run leaves that nobody killed."""
    folder = tmp_path_factory.mktemp("whole")
    return refresh_model(request(bert, write_base(folder / "base.tsv", 60), folder / "model"))


@pytest.mark.parametrize(
    "stage, when",
    [
        *(("fit", "within"), ("export", "after")),
        # The others are slow tests, since each is two runs.
        *(pytest.param(stage, "within", marks=pytest.mark.slow) for stage in STAGES if stage != "fit"),
        *(pytest.param(stage, "after", marks=pytest.mark.slow) for stage in ("base", "fit", "measure")),
    ],
)
def test_a_run_that_is_killed_ends_when_it_is_repeated(
    bert: Path, tmp_path: Path, whole: RefreshResult, stage: str, when: str
) -> None:
    """Whichever stage a kill hits, before or after what it writes, the same call ends with the same model."""
    base, out = write_base(tmp_path / "base.tsv", 60), tmp_path / "model"
    state = tmp_path / "model.work" / "refresh.json"
    if when == "within":
        left = [state.parent / name if name[0] != "/" else out / name[1:] for name in HALF.get(stage, ())]
        with pytest.raises(Killed):
            refresh_model(request(bert, base, out), events=Heard(stage, left))
    else:  # all is written, but it is not noted that the stage is done
        following = dict(pairwise(STAGES)).get(stage, "")
        with pytest.raises(Killed) if following else nullcontext():
            refresh_model(request(bert, base, out), events=Heard(following))
        noted = json.loads(state.read_text("utf-8"))
        noted["done"] = {name: found for name, found in noted["done"].items() if name not in (stage, "result")}
        state.write_text(json.dumps(noted), "utf-8")
    result = refresh_model(request(bert, base, out))

    assert replace(result, model=whole.model) == whole
    found, expected = (load_encoder(str(one.model)).encode(["new york", "city 7"]) for one in (result, whole))
    assert found.vectors.tobytes() == expected.vectors.tobytes()


HALF = {
    "base": ["learned.tsv", "measured.tsv"],
    "start": ["start/model.onnx"],
    "phrases": ["phrases.txt", "types.tsv"],
    "negatives": ["negatives.txt"],
    "fit": ["fitted/training/state.part", "fitted/pearl.json"],
    "average": ["averaged/pearl.json", "averaged/model.safetensors"],
    "head": ["typed/pearl.json"],
    "export": ["/pearl.json", "/model.onnx"],
}
"""What a stage writes, in the work folder, or with a slash in the folder of the model."""


def test_what_is_kept_out_is_not_learned(tmp_path: Path) -> None:
    """A tenth of the entities, by their ids, are only measured, among others that were learned."""
    base = write_base(tmp_path / "base.tsv", 300)
    files = write_base_files([base], tmp_path, seed=0, max_errors=None)
    learned, measured = (
        {line.split("\t")[0] for line in path.read_text("utf-8").splitlines()[1:]}
        for path in (files.learned, files.measured)
    )

    assert measured - learned == {f"Q{i}" for i in range(300) if split_of(f"Q{i}") == 9}
    assert (len(learned), len(measured - learned)) == (files.n_learned, files.n_held_out)
    assert files.has_types


def test_what_cannot_be_refreshed_is_refused(bert: Path, tmp_path: Path) -> None:
    """There is nothing to learn from names that nothing else is called; other files of a work folder are kept."""
    base, work = write_base(tmp_path / "base.tsv", aliases=0), tmp_path / "work"
    with pytest.raises(InputError, match="needs a base with aliases"):
        refresh_model(request(bert, base, tmp_path / "model"))
    work.mkdir()
    (work / "thesis.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(OptionError, match="Give an empty folder"):
        refresh_model(request(bert, base, tmp_path / "model", work=work, restart=True))


def test_minutes_give_as_many_steps_as_they_have_time_for(bert: Path, tmp_path: Path) -> None:
    """However short the time, a step is taken."""
    base = write_base(tmp_path / "base.tsv")
    result = refresh_model(request(bert, base, tmp_path / "model", steps=None, minutes=0.0001))

    assert result.steps == 1


@pytest.mark.parametrize(
    "bounds, expected",
    [
        ([], "not measured"),
        ([(1, 3), (-1, 1)], "better"),
        ([(1, 3), (-4, -1)], "worse"),
        ([(-1, 1), (-1, 2)], "no difference"),
    ],
)
def test_the_verdict_goes_by_the_intervals(bounds: list[tuple[float, float]], expected: str) -> None:
    """It helped if a figure is surely higher, and none is surely lower."""
    assert verdict(tuple(Compared("", 50, 50, low, high) for low, high in bounds)) == expected


@pytest.mark.slow
def test_the_command_measures_what_was_kept_out(bert: Path, tmp_path: Path, run: Run) -> None:
    """With enough entities the aliases that were kept out are linked with both models."""
    base, out = write_base(tmp_path / "base.tsv", 500, aliases=1), tmp_path / "model"
    arguments = [str(base), "--out", str(out), "--model", str(bert), "--minutes", "0.01"]
    *figures, counts, said = run("train", "refresh", *arguments).out.splitlines()

    assert [one.partition(":")[0] for one in figures] == [
        "Linking, canonical names only",
        "Linking, own string excluded",
    ]
    assert counts.startswith(f"{out}: ")
    assert said.startswith(("It helped", "It is worse", "No difference"))
    assert "done already" in run("train", "refresh", *arguments).err


NAMES = ["new york", "heart attack", "aspirin"]


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint whose type head has seen every label but the last."""
    folder = tmp_path_factory.mktemp("models") / "start"
    make_pearl(folder)
    return folder


def refreshed(run: Run, start: Path, out: Path, *words: str, types: str = "") -> Outcome:
    """Two steps of `train fit` on a base of its own, whose entities have the types given in turn."""
    kinds = types.split() or [""]
    rows = "".join(f"{i}\tnew york w{i}\t{kinds[i % len(kinds)]}\tcity {i}\n" for i in range(12))
    base = out.with_name("base.tsv")
    base.write_text(f"id\tname\ttype\taliases\n{rows}", encoding="utf-8")
    given = [
        "--base-model",
        str(start),
        "--aliases",
        str(base),
        "--steps",
        "2",
        "--set",
        "batch_size=12",
        "--out",
        str(out),
    ]
    done = run("train", "fit", *given, *words)
    assert done.status == 0, done.err
    return done


def test_a_base_without_types_leaves_the_type_head_as_it_was(run: Run, start: Path, tmp_path: Path) -> None:
    """What the start's head could say can still be said: types are numbers, and no label is forgotten. Averaging keeps
    the fitted head, and says that another one is a choice, which needs names of every type.
    """
    fitted = refreshed(run, start, tmp_path / "fitted")
    averaged = run("train", "average", str(start), str(tmp_path / "fitted"), str(tmp_path / "averaged"))

    found = load_encoder(str(tmp_path / "fitted")).encode(NAMES).type_probabilities
    assert found is not None
    assert np.isfinite(found).all()
    assert read_config(tmp_path / "fitted").label_counts == read_config(start).label_counts
    assert "train average" in fitted.err
    assert "train head" not in fitted.err
    assert averaged.status == 0, averaged.err
    for said in ("type head is that of", "train head", "every type"):
        assert said in averaged.err


def test_types_of_the_base_are_added_to_those_known(run: Run, start: Path, tmp_path: Path) -> None:
    """A base of two types does not make the others ones that were never seen. But training on it makes a head forget
    them: it is said, with the way to keep it.
    """
    warned = refreshed(run, start, tmp_path / "a", types="ORG GPE")
    counts = dict(zip(PHRASE_TYPES, read_config(tmp_path / "a").label_counts, strict=True))
    assert (counts["NP-ORG"], counts["NP-LAW"], counts[PHRASE_TYPES[-1]]) == (7, 1, 0)
    silent = refreshed(run, start, tmp_path / "b", "--set", "type_weight=0", types="ORG GPE")

    assert "2 of the 19 entity types" in warned.err
    assert "--set type_weight=0" in warned.err
    assert "type_weight" not in silent.err
    assert read_config(tmp_path / "b").label_counts == read_config(start).label_counts


def test_a_head_that_learnt_nothing_says_nothing(run: Run, tmp_path: Path) -> None:
    """A plain encoder refreshed on names without types has no types to give, rather than some that mean nothing."""
    refreshed(run, make_bert(tmp_path / "bert"), tmp_path / "fitted")

    encoder = load_encoder(str(tmp_path / "fitted"))
    assert not encoder.info.has_head
    assert encoder.encode(NAMES).type_probabilities is None
    assert np.isfinite(encoder.encode(NAMES).vectors).all()


def test_a_graph_whose_head_learnt_nothing_gives_vectors_alone(start: Path, tmp_path: Path) -> None:
    """The same through ONNX: the vectors are those of the model, and there are no types."""
    folder = tmp_path / "untaught"
    shutil.copytree(start, folder)
    config = read_config(folder)
    write_config(folder, config.model_copy(update={"label_counts": (0,) * len(PHRASE_TYPES)}))

    encoder = load_encoder(str(folder), runtime="onnx")
    assert not encoder.info.has_head
    assert encoder.encode(NAMES).type_probabilities is None
    expected = load_encoder(str(start), runtime="onnx").encode(NAMES).vectors
    assert np.array_equal(encoder.encode(NAMES).vectors, expected)
