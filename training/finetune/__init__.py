"""Fine-tuning: losses, the training loop, its state, and several processes."""
