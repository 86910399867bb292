"""The protection that the options of `veil privatize` and `veil client` ask for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from veil.cli.common import Arguments, at_least
from veil.cli.records import Record, option
from veil.device.device import Device
from veil.device.protection import DELTA, SUBSET_SIZE, HideInSubspaces, HideInWords, usual_profile
from veil.errors import InputError
from veil.features import Features
from veil.files.codebooks import read_codebook
from veil.mechanisms.profile import Profile
from veil.mechanisms.release import HideInConvergentLines, HideInLines, HideInParallelLines, LineHiding
from veil.mechanisms.selection import Selection, usual_selection


def _count(text: str) -> int | Literal["all"]:
    """A number of features, or "all"."""
    return "all" if text == "all" else at_least(1)(text)


@dataclass(frozen=True, kw_only=True)
class AskedProtection(Record):
    """The protection of descriptors and positions that commands ask for."""

    m: int | None = option(f"with --words how many words a feature sends (default {SUBSET_SIZE})")
    codebook: Path | None = option(
        "codebook with the words of the paper profile and the PCA of the hardened one (default: the bundled one)",
        metavar="FILE",
    )
    decoys: Path | None = option("decoy pool of `veil codebook build` (default: the bundled, public one)", metavar="FILE")
    words: str | None = option("send words of this dictionary (.npz, or 'bundled'), not subspaces", metavar="FILE")
    no_descriptors: bool = option("send positions alone; random words take the place of descriptors", default=False)
    epsilon: float | None = option("with --words: epsilon of each feature ('inf': no privacy)", metavar="E")
    features_sent: int | Literal["all"] | None = option(
        "send N features, or 'all': of subspaces those of largest scale or score (default 1000; paper profile all), of "
        "words a random choice (default all; 1000 with --no-descriptors)",
        name="--features",
        parse=_count,
        metavar="N",
    )
    min_distance: float | None = option(
        "send no two features nearer to each other than this (default 10; paper profile 0; not with --words)", metavar="PX"
    )
    delta: float = option("with --words: delta of the image's epsilon (default %(default)g)", default=DELTA)
    lines: bool = option("send a line through each keypoint, not its position", default=False)
    gravity: Path | None = option("also send gravity: image,x,y,z of down, as `veil gravity` writes", metavar="CSV")
    allow_second_release: bool = option("release an image again with other choices", default=False)


# What `veil client` does not ask for stays as it usually is.
USUAL = {"profile": None, "line_rule": None, "aligned_share": None, "allow_private_dictionary": False}


def _chosen_profile(arguments: Arguments, usual: Profile) -> Profile:
    """The profile that --profile and --m ask for, or the `usual` hardened one.

    Raises InputError for options that do not fit together.
    """
    if arguments.profile == "paper":
        return Profile.paper(arguments.m if arguments.m is not None else 4)
    if arguments.m is not None:
        raise InputError("--m belongs to --words, or to --profile paper of `veil privatize`; the hardened profile is fixed")
    return usual


def asked_descriptors(
    arguments: Arguments, device: Device, images: Iterable[tuple[str, bytes]]
) -> HideInSubspaces | HideInWords:
    """The protection of descriptors that the options ask for; `images` are names and digests of what will be released."""
    if arguments.no_descriptors:
        sent = arguments.features_sent
        return HideInWords.positions_alone() if sent is None else HideInWords.positions_alone(None if sent == "all" else sent)
    return _in_words(arguments, device, images) if arguments.words else _books(arguments)


def _in_words(arguments: Arguments, device: Device, images: Iterable[tuple[str, bytes]]) -> HideInWords:
    """The protection that --words and its options ask for.

    Raises InputError without --epsilon, ReleaseRefused for a dictionary made from the user's own photographs.
    """
    if arguments.epsilon is None:
        raise InputError(
            "--words needs --epsilon; `veil budget plan` shows what an epsilon of the image allows for each feature"
        )
    words = HideInWords(
        epsilon=arguments.epsilon,
        m=SUBSET_SIZE if arguments.m is None else arguments.m,
        dictionary=None if str(arguments.words) == "bundled" else read_codebook(Path(arguments.words)),
        features_sent=None if arguments.features_sent == "all" else arguments.features_sent,
        delta=arguments.delta,
        allow_private_dictionary=arguments.allow_private_dictionary,
    )
    words.image_epsilon(1)  # raises for an impossible delta, before anything is released
    if words.book.provenance.image_digests:
        device.require_public(words, images)
    return words


def _books(arguments: Arguments) -> HideInSubspaces:
    """The protection in subspaces with the codebook and decoys that the options name; its profile depends on the image."""
    return HideInSubspaces(
        codebook=arguments.codebook and read_codebook(arguments.codebook),
        decoys=arguments.decoys and read_codebook(arguments.decoys),
    )


def fitting(
    arguments: Arguments, descriptors: HideInSubspaces | HideInWords, features: Features
) -> HideInSubspaces | HideInWords:
    """The protection for one image: the profile of subspaces depends on whether its descriptors have 8 bits."""
    if isinstance(descriptors, HideInWords):
        return descriptors
    profile = _chosen_profile(arguments, usual_profile(descriptors.codebook, features))
    usual = usual_selection(profile)
    asked, apart = arguments.features_sent, arguments.min_distance
    selection = Selection(
        features=usual.features if asked is None else None if asked == "all" else asked,
        min_distance_px=usual.min_distance_px if apart is None else apart,
    )
    return replace(descriptors, profile=profile, selection=selection)


def asked_lines(arguments: Arguments, gravity: np.ndarray | None) -> LineHiding:
    """The lines that --line-rule and --aligned-share ask for, with the gravity of the image."""
    if arguments.line_rule == "convergent":
        return HideInConvergentLines(gravity=gravity)
    if arguments.line_rule == "parallel":
        return HideInParallelLines(gravity=gravity)
    share = {} if arguments.aligned_share is None else {"aligned_share": arguments.aligned_share}
    return HideInLines(gravity=gravity, **share)


def require_consistent(arguments: Arguments) -> None:
    """Raise InputError for options that do not go together, before anything is drawn or entered."""
    if arguments.line_rule and not arguments.lines:
        raise InputError("--line-rule belongs to --lines: without lines, positions are sent")
    if arguments.words and arguments.line_rule in ("convergent", "parallel"):
        raise InputError("--line-rule convergent and parallel belong to subspaces: words with such lines are not localized")
    if arguments.aligned_share is not None and arguments.line_rule in ("convergent", "parallel"):
        raise InputError("--aligned-share belongs to random lines: those of two halves of the picture are not drawn")
    subspaces = ("profile", "codebook", "decoys")
    of_descriptors = (*subspaces, "m", "words", "epsilon", "min_distance")
    if arguments.no_descriptors and (arguments.lines or any(getattr(arguments, name) is not None for name in of_descriptors)):
        raise InputError(
            "--no-descriptors sends positions alone; it goes with --features and --gravity, not with lines or options of "
            "descriptors"
        )
    if arguments.words and any(getattr(arguments, name) is not None for name in subspaces):
        raise InputError("--profile, --codebook and --decoys belong to subspaces; --words sends words instead")
    if arguments.words and arguments.min_distance is not None:
        raise InputError("--min-distance belongs to subspaces: words leave by a random choice (--features)")
    if not arguments.words and (arguments.epsilon is not None or arguments.allow_private_dictionary):
        raise InputError("--epsilon and --allow-private-dictionary belong to --words; subspaces have no epsilon")
    if arguments.output.exists() and not arguments.output.is_dir():
        raise InputError(f"cannot write to {arguments.output}: it is not a folder; choose another place or free it")
