"""Mutants: small, realistic mistakes in production code, each of which a check must see."""
