"""Read Wikidata dumps: JSON, and truthy N-Triples."""
