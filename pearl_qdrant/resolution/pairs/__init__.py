"""Two names side by side: which pairs are looked at, their features, and the probability that both mean the same."""
