"""Randomizers against theory on invented clients, heavy hitters, and attacks by averaging."""
