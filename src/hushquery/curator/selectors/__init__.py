"""Selectors of queries, a file each."""
