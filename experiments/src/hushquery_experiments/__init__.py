"""The experiments of the papers, measured again with hushquery, and what they are measured against.

A second package: it sees hushquery, and hushquery never sees it but by entry points. Whatever is computed against a
true log is marked as not publishable.
"""
