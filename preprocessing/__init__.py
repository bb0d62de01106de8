"""Offline jobs that turn tables into a graph bundle: ids, CSR topology, features, PPR top-K, degree weights."""
