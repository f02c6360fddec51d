"""hushquery: what a crowd searches for and clicks on, without what any one person searched for."""

from hushquery._version import __version__

__all__ = ["__version__"]
