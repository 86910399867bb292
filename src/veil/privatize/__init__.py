"""Features -> forms; the raw side."""

from veil.privatize.lines import LineOptions, lift_to_lines
from veil.privatize.profile import Profile, hardened, paper
from veil.privatize.public import publish
from veil.privatize.release import HideInLines, Release, WordRelease, privatize, privatize_words, pseudonym
from veil.privatize.subspace import DecoyRule, Lifted, lift

__all__ = [
    "DecoyRule",
    "HideInLines",
    "Lifted",
    "LineOptions",
    "Profile",
    "Release",
    "WordRelease",
    "hardened",
    "lift",
    "lift_to_lines",
    "paper",
    "privatize",
    "privatize_words",
    "pseudonym",
    "publish",
]
