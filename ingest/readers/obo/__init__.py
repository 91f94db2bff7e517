"""Read ontologies in OBO format."""
