"""Text to phrases with lexical classes: the built-in chunker, and the constituency parser of the paper."""
