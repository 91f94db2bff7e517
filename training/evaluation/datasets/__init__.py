"""Reads evaluation sets: from a folder, from the hub, or from a base of the user's own."""
