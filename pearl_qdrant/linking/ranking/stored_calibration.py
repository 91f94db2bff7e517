"""What `pearl-qdrant calibrate` left in a collection's manifest, as the linker uses it."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from pearl_qdrant.errors import CalibrationError
from pearl_qdrant.linking.ranking.model import Calibration, RankingModel
from pearl_qdrant.store.protocol import Collection
from pearl_qdrant.store.schema import LinkCalibration

_log = logging.getLogger(__name__)


def calibration_of(stored: LinkCalibration) -> Calibration:
    """Slope, bias and threshold."""
    return Calibration(stored.slope, stored.nil_bias, stored.threshold)


def model_of(stored: LinkCalibration) -> RankingModel | None:
    """The coefficients; None: those that come with the package.

    Raises:
        CalibrationError: If there is one that this version does not know.
    """
    if stored.features is None or stored.nil_features is None:
        return None
    try:
        return RankingModel.from_names(stored.features, stored.nil_features)
    except ValueError as error:
        raise CalibrationError(
            f"This collection was calibrated by another version of pearl-qdrant ({error}). Fit it again: pearl-qdrant "
            f"calibrate"
        ) from error


def common_calibration(collections: Sequence[Collection]) -> LinkCalibration | None:
    """What was fitted to the collections, if it is the same for all; the order in which they are named is no reason."""
    first = collections[0].manifest.calibration
    if all(collection.manifest.calibration == first for collection in collections):
        return first
    _log.warning(
        "the collections are calibrated differently: probabilities, threshold and ranking are those that come with the "
        "package"
    )
    return None
