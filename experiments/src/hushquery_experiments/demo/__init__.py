"""``hushquery demo --serve``: a collector, and a crowd that sends to it."""
