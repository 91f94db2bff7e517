"""What all tables have in common (TSV, CSV, JSON Lines, Parquet): which column is what, and rows to entities."""
