"""Fine-tuning: trains an encoder on pairs of names with a contrastive loss and a type loss."""
