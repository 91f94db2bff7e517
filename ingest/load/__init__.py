"""The load: a base into a collection, resumable, and updates by a newer release."""
