"""Deprecated: `calibrate_collection` is in `pearl_qdrant.linking.calibration.calibrate`."""

from __future__ import annotations

from pearl_qdrant._lazy import moved_names

__getattr__ = moved_names(__name__, {"calibrate_collection": "pearl_qdrant.linking.calibration.calibrate"})
