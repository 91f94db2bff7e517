"""The command that loads a base: its options and what it prints."""
