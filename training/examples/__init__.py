"""Examples: the record of a training example, and its parts from WordNet, number rules and splits."""
