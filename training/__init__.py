"""Training of the encoder: every stage is one call, exported by `pearl_qdrant`. Needs the extra `train`."""
