"""Progress of a load, by callbacks."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ingest.base.scan import ScanResult
    from pearl_qdrant.encoder.protocol import Encoder


class LoadEvents:
    """Callbacks of a load, which do nothing: override those of interest. Calls never overlap."""

    def scanned(self, result: ScanResult) -> None:
        """The input was counted; the report lists skipped rows."""

    def model_loaded(self, encoder: Encoder) -> None:
        """The encoder is ready."""

    def unchanged(self, edited: bool) -> None:
        """The collection holds this input already, so there is nothing to do; it may have been edited since."""

    def newer_release(self) -> None:
        """The input is a newer release of what the collection holds, which is updated."""

    def resumed(self, entities: int) -> None:
        """An interrupted load goes on; this many entities of the input are stored."""

    def started(self, names: int) -> None:
        """Encoding and storing, or comparing, starts; there are this many names."""

    def names_done(self, names: int) -> None:
        """This many more names are done."""

    def entities_stored(self, entities: int) -> None:
        """This many entities of the input are stored durably."""

    def graph_built(self, done: int, total: int) -> None:
        """`done` of `total` vectors are in the graph; called a few times a second while it is built."""
