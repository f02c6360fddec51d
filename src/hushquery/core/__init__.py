"""The promises: budgets, units, guarantees, sensitivity, composition, calibration and the ledger.

This package sees nobody else in hushquery but the error tree. It draws no randomness and reads no data.
"""
