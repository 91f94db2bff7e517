"""Versions of collections on a server, and snapshots of their shards."""
