"""What the loops of training share: log and curves, saved state, stop requests, several processes."""
