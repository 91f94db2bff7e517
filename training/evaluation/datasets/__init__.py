"""Where evaluation data comes from: a folder, or the hub."""
