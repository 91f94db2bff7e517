"""Bases to entities to points: readers, the scan, and the load."""
