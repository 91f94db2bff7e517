"""Views: any number of processes read an embedded collection, beside one that writes it."""
