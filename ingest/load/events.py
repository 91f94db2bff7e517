"""What a load reports while it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ingest.base.scan import ScanResult
    from pearl_qdrant.encoder.protocol import Encoder


class LoadEvents:
    """What a load reports while it runs: override what is of interest. Calls never overlap."""

    def scanned(self, result: ScanResult) -> None:
        """The input was counted, and rows were passed over."""

    def model_loaded(self, encoder: Encoder) -> None:
        """The encoder is ready."""

    def resumed(self, entities: int) -> None:
        """An interrupted load of this input resumes after so many entities."""

    def input_changed(self) -> None:
        """The input changed since its load was interrupted: it is loaded from the start."""

    def started(self, names: int) -> None:
        """So many names are now encoded and stored, or compared."""

    def names_done(self, names: int) -> None:
        """So many names more are done."""

    def entities_stored(self, entities: int) -> None:
        """So many entities of the input, from its start, are stored for good."""

    def graph_built(self, done: int, total: int) -> None:
        """`done` of `total` vectors are in the graph; called a few times a second while it is built."""
