"""Read Wikidata dumps in JSON."""
