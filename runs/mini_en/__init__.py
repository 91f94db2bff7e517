"""Parts of the recipe of the shipped model: what it learns from, and how it is finished."""
