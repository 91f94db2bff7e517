"""Text and bases to phrases with their lexical classes and entity types."""
