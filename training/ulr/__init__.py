"""ULR: trains an encoder so that the vectors of an n-gram and of the rest of its sequence add up to the sequence's."""
