"""A refreshed encoder in one call: stages, resuming, what is kept out, and the verdict.
The time of a refresh: all stages are within its minutes, on a machine of any pace.
"""

from __future__ import annotations

import json
import math
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from cli_runner import Run
from tiny_models import make_bert

from pearl_qdrant import RefreshEvents, RefreshRequest, RefreshResult, refresh_model
from pearl_qdrant.encoder.loading import load_encoder
from pearl_qdrant.errors import InputError, OptionError
from training import refresh as pipeline
from training.corpus.typing import CHUNK, vocabulary_phrases, write_predicted_types
from training.examples.example import split_of
from training.options import STAGES, Compared
from training.refresh import Budget, _Refresh, verdict, write_base_files, write_some


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny BERT."""
    return make_bert(tmp_path_factory.mktemp("models") / "bert")


def write_base(path: Path, n: int = 40, *, kind: str = "ORG", aliases: bool = True) -> Path:
    """A base of n entities, each with two aliases."""
    rows = [f"Q{i}\tnew york w{i}\t{kind}\t{f'city {i}|york {i}' if aliases else ''}\n" for i in range(n)]
    path.write_text("id\tname\ttypes\taliases\n" + "".join(rows), encoding="utf-8")
    return path


class Heard(RefreshEvents):
    """Keeps the stages."""

    def __init__(self) -> None:
        self.ran: list[str] = []

    def stage(self, name: str, detail: str = "") -> None:
        if detail != "done already":
            self.ran.append(name)


def request(bert: Path, base: Path, out: Path, **changes: Any) -> RefreshRequest:
    """A run of two steps."""
    settings: dict[str, Any] = {"steps": 2, "batch_size": 8, "device": "cpu", **changes}
    return RefreshRequest(base=base, out=out, model=str(bert), **settings)


def test_one_call_makes_a_model_and_goes_on_where_it_stopped(
    bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All stages run once; after an interruption only those that are left; the model encodes names."""
    base, out = write_base(tmp_path / "base.tsv"), tmp_path / "model"
    stopped, resumed = Heard(), Heard()
    with monkeypatch.context() as patched:
        patched.setattr("training.refresh.average_checkpoint", interrupted)
        with pytest.raises(KeyboardInterrupt):
            refresh_model(request(bert, base, out), events=stopped)
    result = refresh_model(request(bert, base, out), events=resumed)

    assert stopped.ran == ["base", "start", "phrases", "negatives", "steps", "fit", "average"]
    assert resumed.ran == ["average", "head", "export", "measure"]
    assert (result.steps, result.entities + result.held_out, result.verdict) == (2, 40, "not measured")
    assert load_encoder(str(out)).encode(["new york"]).vectors.shape[1] == 32
    with pytest.raises(OptionError, match="other values of: batch_size"):
        refresh_model(request(bert, base, out, batch_size=4))


class Killed(BaseException):
    """The process ends here."""


@pytest.fixture(scope="module")
def whole(bert: Path, tmp_path_factory: pytest.TempPathFactory) -> RefreshResult:
    """What a run leaves that nobody killed."""
    folder = tmp_path_factory.mktemp("whole")
    return refresh_model(request(bert, write_base(folder / "base.tsv", 60), folder / "model"))


QUICK = {("fit", "within"), ("export", "after")}
"""Kills of the default run; the others are slow tests, since each is two runs."""


@pytest.mark.parametrize(
    "stage, when",
    [
        pytest.param(stage, when, marks=() if (stage, when) in QUICK else pytest.mark.slow)
        for stage in STAGES
        for when in ("within", "after")
    ],
)
def test_a_run_that_is_killed_ends_when_it_is_repeated(
    bert: Path, tmp_path: Path, whole: RefreshResult, monkeypatch: pytest.MonkeyPatch, stage: str, when: str
) -> None:
    """Whichever stage a kill hits, before or after what it writes, the same call ends with the same model."""
    base, out = write_base(tmp_path / "base.tsv", 60), tmp_path / "model"
    run_stage: Any = _Refresh._stage

    def die(refresh: _Refresh, name: str, run: Callable[[], Any], **detail: str) -> Any:
        def run_and_die() -> Any:
            if when == "after":  # all is written, but it is not noted that the stage is done
                run()
            else:
                leave_half(refresh, name)
            raise Killed

        return run_stage(refresh, name, run_and_die if name == stage else run, **detail)

    with monkeypatch.context() as patched:
        patched.setattr(_Refresh, "_stage", die)
        with pytest.raises(Killed):
            refresh_model(request(bert, base, out))
    result = refresh_model(request(bert, base, out))

    assert replace(result, model=whole.model) == whole
    found, expected = (load_encoder(str(one.model)).encode(["new york", "city 7"]) for one in (result, whole))
    assert found.vectors.tobytes() == expected.vectors.tobytes()


def leave_half(refresh: _Refresh, stage: str) -> None:
    """Leave files that are cut off where a stage writes its own."""
    written = {
        "base": ["learned.tsv", "measured.tsv"],
        "start": ["start/model.onnx"],
        "phrases": ["phrases.txt", "types.tsv"],
        "negatives": ["negatives.txt"],
        "fit": ["fitted/training/state.part", "fitted/pearl.json"],
        "average": ["averaged/pearl.json", "averaged/model.safetensors"],
        "head": ["typed/pearl.json"],
        "export": [str(refresh.out / "pearl.json"), str(refresh.out / "model.onnx")],
    }
    for name in written.get(stage, ()):
        path = refresh.state.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("cut o")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_a_run_that_is_killed_at_random_ends_when_it_is_repeated(bert: Path, tmp_path: Path, seed: int) -> None:
    """A process that is killed anywhere leaves a work folder from which the next one ends."""
    base, out = write_base(tmp_path / "base.tsv", 60), tmp_path / "model"
    victim = VICTIM.format(base=str(base), out=str(out), model=str(bert), n=random.Random(seed).randrange(1, 40))
    killed = subprocess.run([sys.executable, "-c", victim], check=False, timeout=600, capture_output=True)
    result = refresh_model(request(bert, base, out))

    assert killed.returncode == -signal.SIGKILL
    assert result.steps == 2
    assert load_encoder(str(out)).encode(["new york"]).vectors.shape[1] == 32


VICTIM = """
import os, signal
from pathlib import Path
from pearl_qdrant import RefreshRequest, refresh_model

seen = 0

def count(self, *given, **named):
    global seen
    seen += 1
    if seen == {n}:
        os.kill(os.getpid(), signal.SIGKILL)
    return original(self, *given, **named)

original, Path.open = Path.open, count
refresh_model(RefreshRequest(base={base!r}, out={out!r}, model={model!r}, steps=2, batch_size=8, device="cpu"))
"""


def interrupted(*_: object, **__: object) -> None:
    """Ctrl-C in the middle of a stage."""
    raise KeyboardInterrupt


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


def test_a_base_without_aliases_is_refused(bert: Path, tmp_path: Path) -> None:
    """There is nothing to learn from names that nothing else is called."""
    base = write_base(tmp_path / "base.tsv", aliases=False)

    with pytest.raises(InputError, match="needs a base with aliases"):
        refresh_model(request(bert, base, tmp_path / "model"))


def test_files_that_no_refresh_wrote_are_kept(bert: Path, tmp_path: Path) -> None:
    """A work folder with other files is refused, with `restart` too."""
    base, work = write_base(tmp_path / "base.tsv"), tmp_path / "work"
    work.mkdir()
    (work / "thesis.txt").write_text("mine", encoding="utf-8")

    with pytest.raises(OptionError, match="Give an empty folder"):
        refresh_model(request(bert, base, tmp_path / "model", work=work, restart=True))


def test_words_of_the_vocabulary_are_distilled(bert: Path) -> None:
    """Whole words of letters, alone and in pairs, the same for each seed."""
    found = vocabulary_phrases(bert / "tokenizer.json", seed=0)

    assert "york" in found
    assert all(word.isalpha() and len(word) >= 3 for phrase in found for word in phrase.split())
    assert found == vocabulary_phrases(bert / "tokenizer.json", seed=0)


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
    base, out = write_base(tmp_path / "base.tsv", 700, kind="ORG"), tmp_path / "model"
    arguments = [str(base), "--out", str(out), "--model", str(bert), "--steps", "2", "--batch", "8", "--device", "cpu"]
    found = json.loads(run("train", "refresh", *arguments, "--json").out)

    assert found["verdict"] in ("better", "worse", "no difference")
    assert [one["task"] for one in found["figures"]] == [
        "Linking, canonical names only",
        "Linking, own string excluded",
    ]
    assert "done already" in run("train", "refresh", *arguments).err


@dataclass
class Machine:
    """A machine on which work takes the time that it is told."""

    now: float = 0.0
    took: dict[str, float] = field(default_factory=dict)

    def clock(self) -> float:
        return self.now

    def work(self, stage: str, seconds: float) -> None:
        self.now += seconds
        self.took[stage] = self.took.get(stage, 0.0) + seconds


def test_a_budget_counts_what_earlier_runs_took() -> None:
    """Shares are of the whole, and never more than what is left."""
    machine = Machine()
    budget = Budget(100.0, 30.0, machine.clock)
    machine.now += 20

    assert (budget.used, budget.left, budget.share(0.2)) == (50.0, 50.0, 20.0)
    assert budget.count(0.2, 0.5, least=10, most=60) == 40
    assert budget.count(0.2, 50.0, least=10, most=60) == 10
    machine.now += 45
    assert (budget.share(0.2), budget.before(2.0), budget.before(9.0)) == (5.0, 3.0, 0.0)


def test_without_minutes_nothing_is_cut() -> None:
    """A run of a given number of steps has no budget."""
    budget = Budget(math.inf)

    assert (budget.left, budget.share(0.1), budget.before(5.0)) == (math.inf, math.inf, math.inf)
    assert budget.count(0.1, 1.0, least=1, most=7) == 7


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A base of 700 entities, each with two aliases."""
    path = tmp_path / "base.tsv"
    rows = [f"Q{i}\tnew york w{i}\tORG\tcity {i}|york {i}\n" for i in range(700)]
    path.write_text("id\tname\ttypes\taliases\n" + "".join(rows), encoding="utf-8")
    return path


SECONDS_A_NAME = 0.0006  # of the machine with pace 1: two cores


@pytest.mark.parametrize("pace", [0.25, 1.0, 4.0], ids=["quick", "ordinary", "slow"])
def test_two_minutes_are_kept_within_a_fifth(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pace: float
) -> None:
    """Whatever a name and a step cost, the stages together take the minutes that were asked for."""
    machine = Machine()
    plan = simulate(machine, pace, monkeypatch)
    out = tmp_path / "model"
    request = RefreshRequest(base=base, out=out, model=str(tmp_path / "start"), minutes=2, device="cpu")
    result = refresh_model(request)

    assert 0.8 * 120 <= machine.now <= 1.2 * 120, machine.took
    assert 1 <= result.steps <= plan["steps"]


def simulate(machine: Machine, pace: float, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Replace what takes time by what takes the machine's; steps take half as long again as was measured."""
    a_name, a_step, plan = SECONDS_A_NAME * pace, 1.5 * pace, {"steps": 0}

    def take(stage: str, seconds: Callable[[Mapping[str, Any]], float], answer: Any = None) -> Callable[..., Any]:
        def run(*given: Any, **named: Any) -> Any:
            machine.work(stage, pace * seconds(named))
            return answer

        return run

    def phrases(path: Path, names: list[str], *_: Any, is_over: Callable[[], bool], **__: Any) -> tuple[int, int]:
        done = 0
        while done < 20_000 and not (done and is_over()):
            machine.work("phrases", CHUNK * a_name)
            done += CHUNK
        return done, done

    def fit(request: Any, *, max_seconds: float) -> Any:
        plan["steps"], done, until = request.steps, 0, machine.now + max_seconds
        while done < request.steps and not (done and machine.now >= until):
            machine.work("fit", a_step * 1.5)
            done += 1
        return type("Found", (), {"steps": done})

    def head(*_: Any, options: Any, **__: Any) -> None:
        machine.work("head", min(18 * options.max_each, 40_000) * a_name)

    def measure(refresh: Any, files: Any, seconds_a_name: float) -> list[dict[str, Any]]:
        rows, mentions, a_row, a_mention = refresh._measured(files, seconds_a_name)
        machine.work("measure", rows * a_row + mentions * a_mention)
        return []

    real = Budget
    monkeypatch.setattr(pipeline, "Budget", lambda seconds, spent: real(seconds, spent, machine.clock))
    monkeypatch.setattr(pipeline._Refresh, "_measure", measure)
    monkeypatch.setattr(pipeline, "find_model", lambda model: type("Found", (), {"folder": Path(model)}))
    monkeypatch.setattr(pipeline, "is_checkpoint", lambda folder: True)
    monkeypatch.setattr(pipeline, "rebuild_for_torch", take("start", lambda _: 3.0))
    monkeypatch.setattr(pipeline, "open_base_model", lambda *_, **__: type("Base", (), {"folder": Path("x")}))
    monkeypatch.setattr(pipeline, "vocabulary_phrases", lambda *_, **__: ["word"])
    monkeypatch.setattr(pipeline, "load_encoder", lambda *_, **__: None)
    monkeypatch.setattr(pipeline, "write_predicted_types", phrases)
    monkeypatch.setattr(pipeline, "mine_negatives", take("negatives", lambda _: 2.0, 5))
    monkeypatch.setattr(pipeline, "seconds_a_step", lambda *_: (a_step, a_name))
    monkeypatch.setattr(pipeline, "fit_model", fit)
    monkeypatch.setattr(pipeline, "average_checkpoint", take("average", lambda _: 0.4))
    monkeypatch.setattr(pipeline, "train_head", head)
    monkeypatch.setattr(pipeline, "export_checkpoint", take("export", lambda _: 4.0, NoParity()))
    return plan


@dataclass
class NoParity:
    """What an export found."""

    mean_cosine: float = 1.0


def test_a_table_of_some_rows_has_their_lines(base: Path, tmp_path: Path) -> None:
    """The part of a base that is mined or measured has the header and the wanted rows."""
    files = write_base_files([base], tmp_path, seed=0, max_errors=None)
    lines = files.learned.read_text("utf-8").splitlines()
    part = write_some(files.learned, tmp_path / "part.tsv", [0, 3]).read_text("utf-8").splitlines()

    assert part == [lines[0], lines[1], lines[4]]
    assert files.n_names == 3 * files.n_learned
    assert files.n_measured_names == 3 * 700


def test_types_are_predicted_until_the_time_is_over(tmp_path: Path) -> None:
    """At least one part of the phrases is encoded, and what is done is reported."""

    class Plain:
        def encode(self, names: list[str]) -> Any:
            return type("Encoded", (), {"type_probabilities": None})

    heard: list[tuple[int, int]] = []
    phrases = [f"word {i}" for i in range(3 * CHUNK)]
    found = write_predicted_types(
        tmp_path / "types.tsv",
        phrases,
        Plain(),  # type: ignore[arg-type]
        is_over=lambda: len(heard) >= 2,
        on_progress=lambda done, total: heard.append((done, total)),
    )

    assert found == (0, 2 * CHUNK)
    assert heard == [(CHUNK, 3 * CHUNK), (2 * CHUNK, 3 * CHUNK)]


@pytest.mark.slow
def test_stages_say_what_is_done_and_what_is_left(base: Path, tmp_path: Path) -> None:
    """Encoding reports names done of all, and each stage the minutes that are left."""
    stages: dict[str, str] = {}
    counts: dict[str, list[tuple[int, int | None]]] = {}

    class Heard(RefreshEvents):
        def stage(self, name: str, detail: str = "") -> None:
            stages[name] = detail

        def progress(self, done: int, total: int | None) -> None:
            counts.setdefault(list(stages)[-1], []).append((done, total))

    bert = make_bert(tmp_path / "bert")
    request = RefreshRequest(
        base=base, out=tmp_path / "model", model=str(bert), minutes=0.01, batch_size=8, device="cpu"
    )
    result = refresh_model(request, events=Heard())

    assert result.steps >= 1
    assert all("minutes left" in detail for detail in stages.values())
    assert {"phrases", "negatives", "measure"} <= counts.keys()
    assert all(total is None or done <= total for steps in counts.values() for done, total in steps)
