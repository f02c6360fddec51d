"""Experiments of the papers, one file each, on synthetic logs or on a steward's own. Their results are not publishable
where the log is real."""
