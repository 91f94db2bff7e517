"""Partitions of a collection by entity: the rule that says which names belong to which."""
