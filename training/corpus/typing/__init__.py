"""Typing: assigns entity types to phrases, by names and rules or by a NER model."""
