"""Sanitization of a message's features by its header, in the words of the GeoPoseProtocol."""

from __future__ import annotations

from veil.wire.codec_words import mechanism_of
from veil.wire.head import Head, text

PREFIX = "veil:"


def sanitization(head: Head) -> tuple[str, str]:
    """Sanitization of descriptors and of positions (docs/reference/geopose.md#what-was-done-to-the-features).

    Such as ("veil:words:epsilon=8", "veil:lines"). Raises WireError for a header that gives no mechanism or profile.
    """
    if head.has_words:
        descriptors = f"{PREFIX}words:epsilon={mechanism_of(head).epsilon:g}"
    else:
        descriptors = f"{PREFIX}subspaces:{text(head.own, 'profile')}"
    return descriptors, f"{PREFIX}lines" if head.has_lines else f"{PREFIX}positions"
