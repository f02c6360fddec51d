"""Experiments of the papers, one file each, on synthetic logs or a steward's own; see :mod:`~hushquery.evaluate`."""
