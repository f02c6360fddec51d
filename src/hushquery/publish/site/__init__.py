"""A static site out of releases: trends, a search that works offline, and what it all cost in privacy.

:func:`build_site` gives the files, :func:`write_site` writes them, and a server serves them with :data:`HEADERS` and
:func:`media_type`. Every address in them is relative, so that they work under any path.
"""

from hushquery.publish.site.build import HEADERS, build_site, media_type, write_site

__all__ = ["HEADERS", "build_site", "media_type", "write_site"]
