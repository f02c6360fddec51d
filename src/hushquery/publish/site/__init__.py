"""Build a static site out of releases: trends, a search that works offline, and what it all cost in privacy.

Every address is relative, so that the files work under any path; serve them with :data:`HEADERS`.
"""

from hushquery.publish.site.build import HEADERS, build_site, media_type, write_site

__all__ = ["HEADERS", "build_site", "media_type", "write_site"]
