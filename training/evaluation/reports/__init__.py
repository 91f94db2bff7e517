"""Evaluation results as tables and figures."""
