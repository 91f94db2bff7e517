"""Mention detection: running text to spans, and the spans to annotations."""
