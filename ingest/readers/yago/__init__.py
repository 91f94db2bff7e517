"""YAGO downloads: Turtle and tab-separated facts."""
