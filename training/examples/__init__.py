"""Training examples: names that mean the same, from WordNet, bases, typed lists and rules."""
