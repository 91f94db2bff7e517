"""Shows evaluation results as tables and figures."""
