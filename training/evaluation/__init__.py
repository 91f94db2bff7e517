"""Measures an encoder on the tasks of both papers, on entity types and on linking."""
