"""The order of pages in the navigation, and the README as a page of docs/."""

from __future__ import annotations

import re

# A link to a page of the same folder.
LINK = re.compile(r"\]\(([a-z_]+)\.md\)")
# Where a link or a picture leads, unless it leads off the site or to its own page.
TARGET = re.compile(r"\]\((?![a-z]+:|#)([^)\s]+)\)")


def pages(text: str) -> list[str]:
    """The pages of its folder that a README links, in its order, each once."""
    return list(dict.fromkeys(LINK.findall(text)))


def seen_from_docs(text: str) -> str:
    """A text of the repository's root whose relative links lead to the same files from a page in docs/."""

    def moved(target: re.Match[str]) -> str:
        path = target[1]
        return f"]({path.removeprefix('docs/') if path.startswith('docs/') else f'../{path}'})"

    return TARGET.sub(moved, text)
