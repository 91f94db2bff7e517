"""Read YAGO downloads: N-Triples and Turtle."""
