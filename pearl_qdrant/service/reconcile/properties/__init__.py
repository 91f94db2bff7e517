"""Properties of entities: which there are, how well values agree, and what that says of a candidate."""
