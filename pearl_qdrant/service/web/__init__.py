"""What every request goes through: limits, keys, request ids, and errors as JSON."""
