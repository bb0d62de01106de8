"""How good embeddings are, with labels and without."""
