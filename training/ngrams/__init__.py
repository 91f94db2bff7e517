"""N-grams: finds those of a corpus by PMI, marks them in its sequences, and chooses one of a sequence (ULR)."""
