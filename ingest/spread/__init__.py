"""One base over many workers: cut by entity, each part built apart with its graph, then joined or left on a server."""
