"""What a training stage reports while it runs."""

from __future__ import annotations

from collections.abc import Mapping


class TrainingEvents:
    """What a training stage reports while it runs. Override the methods of interest; calls never overlap."""

    def examples_read(self, count: int, skipped: Mapping[str, int]) -> None:
        """The inputs were read.

        Args:
            count: Training examples found.
            skipped: Rows that were not used, by reason.
        """

    def types_at_risk(self, kept: int, known: int) -> None:
        """The examples cover only `kept` of the `known` entity types of the type head, which will forget the others."""

    def names_encoded(self, task: str, count: int) -> None:
        """More names were encoded.

        Args:
            task: "encode", or "teacher" for those of the teacher.
            count: Names since the last call.
        """
