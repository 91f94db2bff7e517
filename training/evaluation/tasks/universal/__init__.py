"""The evaluation of universal language representations (Li & Zhao 2021): analogies and question retrieval."""
