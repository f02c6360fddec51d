"""RAPPOR: responses, collection and decoding."""
