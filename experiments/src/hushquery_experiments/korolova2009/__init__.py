"""Korolova et al. 2009: how much of a log is published, and whether it says what the log would have said."""
