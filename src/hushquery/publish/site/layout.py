"""What every page of the site has: head, navigation, footer, and the policy under which a browser shows it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hushquery.release.markup import isolated, shown

__all__ = ["HEADERS", "PAGES", "POLICY", "Shell", "fact", "published", "section"]

#: What a page may do: load its own files, and nothing else from anywhere.
POLICY = (
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

#: The pages, in the order of the navigation: file and name.
PAGES = {"index.html": "Trends", "search.html": "Search", "privacy.html": "Privacy"}


@dataclass(frozen=True)
class Shell:
    """What all pages of one site share.

    Args:
        whom: The people that the site speaks of.
        made: When and with what it was made, in a line.
        warning: What is wrong with the releases; empty where nothing is.
    """

    whom: str
    made: str
    warning: str = ""

    def page(self, file: str, title: str, lead: str, parts: Sequence[str], script: str) -> bytes:
        """Write one page.

        Args:
            file: The page's own name.
            title: Its heading, as HTML.
            lead: A sentence below it, as HTML.
            parts: What it shows, as HTML.
            script: The module it runs.
        """
        here = ' aria-current="page"'
        links = "".join(
            f'<li><a href="{name}"{here if name == file else ""}>{told}</a></li>' for name, told in PAGES.items()
        )
        alarm = f'<p class="alarm">{shown(self.warning)}</p>' if self.warning else ""
        body = "\n".join(part for part in parts if part)
        return (
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            '<meta name="referrer" content="no-referrer">\n<meta name="color-scheme" content="light dark">\n'
            f"<title>{PAGES[file]} · {shown(self.whom)}</title>\n"
            '<link rel="icon" href="icon.svg" type="image/svg+xml">\n<link rel="stylesheet" href="site.css">\n'
            f'<script type="module" src="{script}"></script>\n</head>\n<body>\n'
            '<a class="skip" href="#main">Skip to the content</a>\n'
            f'<header class="bar-of-pages"><p class="over">{isolated(self.whom)}</p>'
            f'<nav aria-label="Pages"><ul>{links}</ul></nav></header>\n'
            f'<main id="main" tabindex="-1">\n<h1>{title}</h1>\n<p class="lead">{lead}</p>\n{alarm}\n{body}\n</main>\n'
            f'<footer><p class="soft">{shown(self.made)} Nothing on these pages comes from anywhere else, and nothing '
            "you type leaves them.</p></footer>\n</body>\n</html>\n"
        ).encode()


def published(name: str, day: str) -> str:
    """Say which release it is and of which day, the day once.

    >>> published("epoch 2", "2026-11-15"), published("the release of 2026-11-15", "2026-11-15")
    ('epoch 2, published 2026-11-15', 'the release of 2026-11-15')
    """
    return name if day in name else f"{name}, published {day}"


def section(name: str, title: str, *parts: str) -> str:
    """Give a part of a page under a heading that links can name."""
    return f'<section aria-labelledby="{name}"><h2 id="{name}">{shown(title)}</h2>\n{"".join(parts)}</section>'


def fact(value: str, name: str) -> str:
    """Give one large number with its name."""
    return f"<div><dt>{shown(name)}</dt><dd>{shown(value)}</dd></div>"
