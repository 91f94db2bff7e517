"""Phrases to entity types: named entities, numbers, lists and distant labels."""
