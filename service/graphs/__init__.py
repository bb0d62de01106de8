"""Graphs on the wire, the paths they may come from, and single nodes of them."""
