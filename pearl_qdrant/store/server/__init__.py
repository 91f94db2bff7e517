"""A Qdrant server or cluster as a store, over REST. `store.py` is the entry point."""
