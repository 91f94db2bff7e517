"""Load a base into a collection, resumably, and update it to a newer release."""
