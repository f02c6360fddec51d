"""What to do with a release: search, trends, keywords, suggestions, spelling, classes, patterns.

Everything here takes a :class:`hushquery.release.Release`, which is public; nothing here can see a log or spend budget.
"""

from hushquery.publish.keywords import classify, keywords
from hushquery.publish.search import SearchIndex, find, look_up
from hushquery.publish.suggest import correct, similar, suggest
from hushquery.publish.trends import trends

__all__ = ["SearchIndex", "classify", "correct", "find", "keywords", "look_up", "similar", "suggest", "trends"]
