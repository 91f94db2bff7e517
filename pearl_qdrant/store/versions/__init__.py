"""Versions of a collection behind one name, payloads of both stores, and rows of names that move between them."""
