"""LOVE: pre-trains a character encoder that mimics word vectors, typos included."""
