"""Lexical matching: folding of names, hashed n-grams, and their rarity (IDF)."""
