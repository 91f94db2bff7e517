"""Names to vectors and phrase types."""
