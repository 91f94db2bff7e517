"""Commands on whole lists of names: `resolve` and `crosswalk`."""
