"""The common part of all tables (TSV, CSV, JSON Lines, Parquet): which column is what, and rows to entities."""
