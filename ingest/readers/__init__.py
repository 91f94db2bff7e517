"""One folder a format: files to entities."""
