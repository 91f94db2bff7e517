"""Augmentation: makes variants of a phrase with the same meaning, from characters, tokens and paraphrases."""
