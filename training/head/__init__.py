"""Head: fits a type head on a frozen encoder."""
