"""What commands share: options, output, and the error for a missing extra."""
