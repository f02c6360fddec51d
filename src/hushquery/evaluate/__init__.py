"""What looks from outside: audits, and measurements against secret truth that must never be published."""
