"""Read RDF triples, one a line, for the readers of YAGO and Wikidata."""
