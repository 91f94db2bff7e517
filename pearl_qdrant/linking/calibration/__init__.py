"""Calibration: probabilities, threshold and coefficients fitted to a collection."""
