"""The order of pages in the navigation."""

from __future__ import annotations

import re

# A link to a page of the same folder.
LINK = re.compile(r"\]\(([a-z_]+)\.md\)")


def pages(text: str) -> list[str]:
    """The pages of its folder that a README links, in its order, each once."""
    return list(dict.fromkeys(LINK.findall(text)))
