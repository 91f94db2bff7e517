"""Ontologies in OBO format."""
