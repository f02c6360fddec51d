"""Frequency oracles, a file each."""
