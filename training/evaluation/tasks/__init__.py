"""The evaluation tasks, one module for each family; `registry.py` lists them."""
