"""What every base has in common: the reader protocol, the scan, merging of scattered rows, and types."""
