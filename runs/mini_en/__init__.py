"""Parts of the recipe of the English teacher: what it learns from, and the type head of the shipped model."""
