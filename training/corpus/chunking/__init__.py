"""Chunking: finds phrases with lexical classes in text, by patterns or by the constituency parser of the paper."""
