"""Encoders: node features and one adjacency a layer to node embeddings."""
