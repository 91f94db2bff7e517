"""Parts of the recipe of the multilingual model: names of the world in many languages, and how they are measured."""
