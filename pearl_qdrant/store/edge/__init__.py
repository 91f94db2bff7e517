"""The embedded store: Qdrant Edge in this process, one folder for each collection. `store.py` is the entry point."""
