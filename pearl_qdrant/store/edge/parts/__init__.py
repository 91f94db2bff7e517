"""One embedded collection from several that were built apart: their segments are linked, no name is encoded again."""
