"""What the audit needs to know of the curator's mechanisms."""
