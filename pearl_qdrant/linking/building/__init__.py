"""Building: a collection from entities that a program holds, as records, dictionaries or a table, in one call."""
