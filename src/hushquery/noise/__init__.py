"""The only place where the curator draws randomness: exact integer noise from the operating system's generator."""
