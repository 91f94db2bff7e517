"""Reads bases and loads them into collections. What programs call is in `pearl_qdrant`."""
