"""Read UMLS releases: RRF files in a folder or an archive."""
