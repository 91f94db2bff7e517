"""Batches for fine-tuning: reads the training files, draws pairs, augments and tokenises them."""
