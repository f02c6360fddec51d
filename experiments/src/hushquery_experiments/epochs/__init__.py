"""A task over many epochs: people who come, move and change, and what it costs them in all."""
