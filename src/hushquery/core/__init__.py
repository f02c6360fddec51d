"""Privacy accounting: budgets, guarantees, sensitivity, composition, calibration and the ledger. Reads no data."""
