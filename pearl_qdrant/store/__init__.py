"""Points in Qdrant: embedded (`edge.py`) or on a server (`server.py`)."""
