"""Scopes of synonyms in OBO."""

SCOPES = ("EXACT", "NARROW", "BROAD", "RELATED")
