"""Randomizers of numbers: 1BitMean and dBitFlip."""
