"""The linkers of the service: opened once, called by worker threads, asked by coroutines."""
