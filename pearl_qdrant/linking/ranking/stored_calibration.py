"""Reads the calibration that `pearl-qdrant calibrate` stored in the manifest of a collection."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from pearl_qdrant.errors import CalibrationError
from pearl_qdrant.linking.ranking.model import Calibration, RankingModel
from pearl_qdrant.linking.ranking.rules import HIGHEST_THRESHOLD
from pearl_qdrant.store.protocol import Collection
from pearl_qdrant.store.schema import LinkCalibration

_log = logging.getLogger(__name__)


def calibration_of(stored: LinkCalibration) -> Calibration:
    """The stored slope, bias and threshold.

    Versions without rules stored thresholds above the probability that exact names have today; `HIGHEST_THRESHOLD`
    stands for those.
    """
    return Calibration(stored.slope, stored.nil_bias, min(stored.threshold, HIGHEST_THRESHOLD))


def model_of(stored: LinkCalibration) -> RankingModel | None:
    """The stored coefficients; None if only slope, bias and threshold were fitted. Raises CalibrationError if this
    version does not know one of the features.
    """
    if stored.features is None or stored.decision is None or stored.nil_features is None:
        return None
    try:
        return RankingModel.from_names(stored.features, stored.decision, stored.nil_features)
    except ValueError as error:
        raise CalibrationError(
            f"Another version of pearl-qdrant calibrated this collection ({error}). Calibrate it again: pearl-qdrant "
            f"calibrate"
        ) from error


def common_calibration(collections: Sequence[Collection]) -> LinkCalibration | None:
    """The calibration that all collections share; None if they differ, so that their order does not matter."""
    first = collections[0].manifest.calibration
    if all(collection.manifest.calibration == first for collection in collections):
        return first
    _log.warning(
        "the collections have different calibrations: the default probabilities, threshold and ranking are used"
    )
    return None
