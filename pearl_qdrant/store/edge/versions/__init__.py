"""Versions of embedded collections, and their shards as snapshots of a server."""
