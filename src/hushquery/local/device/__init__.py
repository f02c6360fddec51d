"""What runs on a device: the client, its state, and what it fetches and sends."""
