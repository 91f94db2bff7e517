"""The embedded store: Qdrant Edge in a folder, with a process that writes and a lock."""
