"""Calibration: probabilities, threshold and coefficients of a linker, fitted to a collection and measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pearl_qdrant._lazy import lazy_exports

if TYPE_CHECKING:
    from pearl_qdrant.linking.calibration.calibrate import (
        CalibrationData,
        CollectionFit,
        Label,
        calibrate_collection,
        choose_to_label,
        read_pairs,
    )

__all__ = [
    "CalibrationData",
    "CollectionFit",
    "Label",
    "calibrate_collection",
    "choose_to_label",
    "read_pairs",
]

__getattr__, __dir__ = lazy_exports(__name__)
