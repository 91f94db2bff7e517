"""Fixtures of the tests of fine-tuning."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from fit_cases import open_tokenizer


@pytest.fixture
def tokenizer(bert: Path) -> Any:
    """Its tokenizer, without padding."""
    return open_tokenizer(bert)


@pytest.fixture
def one_thread() -> Iterator[None]:
    """One thread, so that sums are in one order, as in the other processes."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
