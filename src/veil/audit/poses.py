"""Sentence on the poses that an attacker found without any descriptor."""

from __future__ import annotations

from collections.abc import Mapping


def pose_note(found: int, releases: int, details: Mapping[str, float]) -> str:
    """Sentence on how many releases were localized from positions and gravity alone, and how much of the map was tried.

    `details` hold the mean numbers of "groups" of images and of "groups_tried".
    """
    tried = f"{details['groups_tried']:g} of {details['groups']:g} groups of images were tried"
    if found:
        return f"localized {found} of {releases} releases from positions and gravity alone, without any descriptor; {tried}"
    return f"localized none of {releases} releases from positions alone; {tried}, and more time, or a rough place, finds more"
