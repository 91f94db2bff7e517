"""The character encoder (LOVE): builds the words of a phrase from token ids, by the characters of the tokens."""
