"""What a training run reads: its files, its batches, and the loader that prepares them."""
