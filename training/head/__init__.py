"""A type head on a frozen encoder."""
