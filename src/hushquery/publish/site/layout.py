"""The policy under which a browser shows a site, and the headers with which a server serves it."""

from __future__ import annotations

from markupsafe import Markup

__all__ = ["HEADERS", "POLICY"]

#: What a page may do: load its own files, and nothing else from anywhere.
POLICY = Markup(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; worker-src 'self'; "
    "base-uri 'none'; form-action 'none'"
)

#: The headers with which a server should serve every file of a site.
HEADERS = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": f"{POLICY}; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
