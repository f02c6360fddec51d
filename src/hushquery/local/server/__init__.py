"""What a server makes of reports: counts, estimates and intervals."""
