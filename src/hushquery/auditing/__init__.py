"""Attacks that prove a lower bound on what a mechanism loses, and checks against its own law and claim."""
