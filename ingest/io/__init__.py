"""Inputs as streams of checked lines: compression, archives, limits, and the report of what is skipped."""
