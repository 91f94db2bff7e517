"""The character encoder (LOVE): words out of token ids, by the characters of their tokens."""
