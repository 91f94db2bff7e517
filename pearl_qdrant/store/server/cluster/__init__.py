"""Shards with keys on the nodes of a cluster: which key a name has, where its shard is, and how it gets there."""
