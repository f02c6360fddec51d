"""The ledger of privacy budgets: its rules, its entries, and where they are kept."""
