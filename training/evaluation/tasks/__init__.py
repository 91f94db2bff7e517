"""The evaluation tasks on phrases and short texts, one module each."""
