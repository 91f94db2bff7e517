"""The time of a refresh: all stages are within its minutes, on a machine of any pace."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tiny_models import make_bert

from pearl_qdrant import RefreshEvents, RefreshRequest, refresh_model
from training import refresh as pipeline
from training.corpus.typing import CHUNK, write_predicted_types
from training.refresh import Budget, write_base_files, write_some


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
