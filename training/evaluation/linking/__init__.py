"""The linking task: mentions of a base against this linker and its peers."""
