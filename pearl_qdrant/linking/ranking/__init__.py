"""The ranking of candidates: features, the linear model, the optional cross-encoder, and what explains a score."""
