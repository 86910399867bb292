"""Mechanisms that turn raw features into forms, on the device.

- `release` makes an upload. `subspaces`, `words` and `lines` are its three mechanisms, `public` publishes without protection.
- `profile` has the settings of lifting, `parameters` encodes what keys the draws.
- `decoy_photographs` takes the decoys of an image from a few other photographs, each as a whole.
- `selection`, `tracks` and `sequence_selection` choose the features that leave. `repeats` gives those that left before
  their earlier draws, and `carried_lines` their lines.
"""

from veil.mechanisms.lines import ConvergentOptions, LineOptions, ParallelOptions, lift_to_lines
from veil.mechanisms.profile import Profile
from veil.mechanisms.public import publish
from veil.mechanisms.release import HideInLines, Release, WordRelease, privatize, privatize_words, pseudonym
from veil.mechanisms.subspaces import DecoyRule, Lifted, lift

__all__ = [
    "ConvergentOptions",
    "DecoyRule",
    "HideInLines",
    "Lifted",
    "LineOptions",
    "ParallelOptions",
    "Profile",
    "Release",
    "WordRelease",
    "lift",
    "lift_to_lines",
    "privatize",
    "privatize_words",
    "pseudonym",
    "publish",
]
