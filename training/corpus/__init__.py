"""Corpus: makes phrases with lexical classes and entity types from texts, and entities from bases."""
