"""Read comma-separated values (CSV): quoted cells, any of four delimiters."""
