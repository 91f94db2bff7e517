"""RDF triples as lines, shared by the readers of YAGO and Wikidata."""
