"""Names as strings: folding, n-grams, and how rare each n-gram is in a base."""
