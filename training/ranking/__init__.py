"""Ranking: fits the coefficients of the linking model."""
