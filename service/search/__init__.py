"""Embedding sets: look-up by id and nearest neighbours."""
