"""What the loops of training share: log, saved state, stop requests, several processes."""
