"""Read JSON Lines: one object a line."""
