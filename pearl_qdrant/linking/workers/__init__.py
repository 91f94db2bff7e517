"""All cores for many mentions: worker processes, each over its own view of an embedded collection."""
