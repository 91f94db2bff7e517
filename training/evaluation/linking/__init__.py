"""Parts of the linking tasks: mention sets, the methods that are compared, and their rankings."""
