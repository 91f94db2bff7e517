"""Generators of input for the benchmarks: bases in their true form, and the worst files for each reader."""
