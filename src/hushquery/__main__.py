"""``python -m hushquery``: the command line."""

from __future__ import annotations

from hushquery.cli import main

if __name__ == "__main__":
    main()
