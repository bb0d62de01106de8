"""RGRL training, inference and evaluation over a graph bundle."""
