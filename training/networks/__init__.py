"""Networks in checkpoint folders: load, save, average, and encode with gradients."""
