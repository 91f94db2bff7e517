"""The fit of `resolve` and `crosswalk`: names whose entities are known, and the recipes of the coefficients."""
