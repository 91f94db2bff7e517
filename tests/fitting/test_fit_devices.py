"""The devices of the network and its teachers in `train fit`, with a stand-in for a machine with two GPUs."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from cli_runner import Run
from tiny_models import make_bert

from pearl_qdrant.encoder.runtime.network import PearlNetwork
from pearl_qdrant.encoder.runtime.torch_runtime import resolve_cuda
from training.finetune import fit_model as stage


class TwoGpus:
    """Stands for torch's GPUs, and records what was loaded on each."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.current = 0
        self.teachers: list[str] = []
        self.loaded: list[str] = []
        self.network: list[str] = []
        for name, value in {
            "is_available": lambda: True,
            "device_count": lambda: 2,
            "current_device": lambda: self.current,
            "set_device": self._choose,
        }.items():
            monkeypatch.setattr(torch.cuda, name, value)
        monkeypatch.setattr(stage, "load_encoder", self._load)
        monkeypatch.setattr(stage, "NetworkTeacher", self._teach)
        monkeypatch.setattr(stage, "fit", lambda *words, **options: 0)
        monkeypatch.setattr(PearlNetwork, "to", self._move)

    def _choose(self, device: torch.device) -> None:
        assert device.index is not None
        self.current = device.index

    def _load(self, model: str, *, device: str) -> Any:
        self.loaded.append(resolve_cuda("cuda" if device == "auto" else device))

    def _teach(self, network: Any, tokenizer: Any, *, device: str) -> Any:
        self.teachers.append(device)

    def _move(self, device: torch.device) -> None:
        self.network.append(str(device))


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> TwoGpus:
    """A machine with two GPUs."""
    return TwoGpus(monkeypatch)


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    """The words of `train fit` with a teacher and with distilled phrases."""
    (tmp_path / "base.tsv").write_text("id\tname\taliases\n1\tnew york\tcity\n", encoding="utf-8")
    (tmp_path / "phrases.txt").write_text("NP__heart attack\t7\n", encoding="utf-8")
    bert, base, phrases = make_bert(tmp_path / "bert"), tmp_path / "base.tsv", tmp_path / "phrases.txt"
    words = ["train", "fit", "--base-model", str(bert), "--aliases", str(base), "--out", str(tmp_path / "out")]
    return [*words, "--teacher", str(bert), "--distil", str(phrases)]


@pytest.mark.parametrize("device", ["auto", "cuda", "cuda:0"])
def test_each_process_has_its_teachers_on_its_own_gpu(
    run: Run, gpus: TwoGpus, words: list[str], monkeypatch: pytest.MonkeyPatch, device: str
) -> None:
    """Under torchrun, network and teachers of the second process are on the second GPU."""
    monkeypatch.setenv("LOCAL_RANK", "1")

    done = run(*words, "--device", device)

    assert done.status == 0, done.err
    assert gpus.network == ["cuda:1"]
    assert gpus.teachers == ["cuda:1"], "one, for the teacher and the encoder that is distilled"


def test_a_process_alone_uses_the_gpu_that_was_named(run: Run, gpus: TwoGpus, words: list[str]) -> None:
    """Without torchrun the device is taken as given."""
    assert run(*words, "--device", "cuda:1").status == 0

    assert (gpus.network, gpus.teachers) == (["cuda:1"], ["cuda:1"])


def test_a_teacher_with_a_tokenizer_of_its_own_gets_the_strings(run: Run, gpus: TwoGpus, words: list[str]) -> None:
    """It is loaded as any encoder is, on the same GPU."""
    path = Path(words[words.index("--base-model") + 1])
    other = path.with_name("other")
    shutil.copytree(path, other)
    (other / "tokenizer.json").write_text((other / "tokenizer.json").read_text("utf-8") + "\n", encoding="utf-8")
    words[words.index("--teacher") + 1] = str(other)

    assert run(*words, "--device", "cuda:1").status == 0
    assert gpus.loaded == ["cuda:1"]
    assert gpus.teachers == ["cuda:1"]


def test_more_processes_than_gpus_are_refused(
    run: Run, gpus: TwoGpus, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With two GPUs the third process raises an error before it reads anything."""
    monkeypatch.setenv("LOCAL_RANK", "2")

    done = run(*words, "--device", "cuda")

    assert done.status == 1
    assert "'cuda:2' was requested, but there are only 2" in done.err
    assert not gpus.network
