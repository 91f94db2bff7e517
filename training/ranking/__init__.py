"""Fitting the coefficients of the linking model."""
