"""The judge of two names: what it learns from, its network, its training and its graph."""
