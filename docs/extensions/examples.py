"""The order in which the site shows the examples: for readers, not by the alphabet."""

from __future__ import annotations

ORDER = ("first_pose", "what_leaves", "attack_your_upload", "epsilon_of_an_image", "serve_and_ask", "poses_from_tiles")


class InOrder:
    """A key that sorts the examples by `ORDER`, as Sphinx-Gallery wants it; what is not listed comes last."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __call__(self, name: str) -> tuple[int, str]:
        stem = name.removesuffix(".py")
        return (ORDER.index(stem) if stem in ORDER else len(ORDER), name)

    def __repr__(self) -> str:
        return "InOrder"
