"""Refresh: an encoder fine-tuned on the names of one base in one call, and measured on entities that it did not see."""
