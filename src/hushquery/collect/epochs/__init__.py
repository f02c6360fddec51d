"""Epochs: their phases, what moves them, and what is computed at each move."""
