"""Pre-training of the character encoder (LOVE)."""
