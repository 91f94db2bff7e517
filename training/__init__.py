"""Text and bases to a checkpoint: losses, batches, trainer, type head, export."""
