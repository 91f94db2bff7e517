"""Tasks of the development suite: what is read, what is measured, and how sure the figure is."""
