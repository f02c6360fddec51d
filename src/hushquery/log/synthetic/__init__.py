"""Synthetic search logs: people, their language, and a private tail."""
