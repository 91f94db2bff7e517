"""Read tab-separated text with columns for id, name, aliases and types."""
