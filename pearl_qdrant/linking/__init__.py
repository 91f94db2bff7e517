"""Mentions to entities."""
