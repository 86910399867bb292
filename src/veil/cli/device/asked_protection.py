"""The protection that the options of `veil privatize` and `veil client` ask for, or the usual one for the purpose."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from veil.cli.common import at_least
from veil.cli.progress import tracker
from veil.cli.records import Record, option
from veil.codebooks.codebook import Codebook
from veil.device.device import Device
from veil.device.protection import (
    EPSILON,
    FEATURES,
    SUBSET_SIZE,
    HideInSubspaces,
    HideInWords,
    Protection,
    Purpose,
    require_localizable,
    usual_profile,
    usual_words,
)
from veil.errors import InputError
from veil.features import Features
from veil.files.codebooks import read_codebook
from veil.files.features import is_features_file, read_features
from veil.mechanisms.decoy_photographs import DecoyPhotographs, of_one_place
from veil.mechanisms.release import HideInLines
from veil.mechanisms.selection import Selection, usual_selection


def _count(text: str) -> int | Literal["all"]:
    """A number of features, or "all"."""
    return "all" if text == "all" else at_least(1)(text)


@dataclass(frozen=True, kw_only=True)
class AskedProtection(Record):
    """The protection of descriptors and positions that commands ask for."""

    obfuscate: bool = option(
        "send subspaces that also hold decoys, an obfuscation without proof (default: for a map alone)", default=False
    )
    m: int | None = option(f"of words how many a feature sends (default {SUBSET_SIZE})")
    codebook: Path | None = option(
        "codebook with the PCA that descriptors are compressed by (default: the bundled one)", metavar="FILE"
    )
    decoys: Path | None = option(
        "decoy pool of `veil codebook build`, or features of photographs of other places, of which each release uses up four "
        "(default: the bundled, public pool)",
        metavar="FILE",
    )
    words: str | None = option("send words of this dictionary (.npz, or 'bundled', the default)", metavar="FILE")
    no_descriptors: bool = option("send positions alone; random words take the place of descriptors", default=False)
    epsilon: float | None = option(
        f"send words at this epsilon of each feature (default {EPSILON:g}; 'inf': no privacy)", metavar="E"
    )
    features_sent: int | Literal["all"] | None = option(
        f"send N features (default {FEATURES}), or 'all': of subspaces those of largest scale or score, of words a random "
        "choice",
        name="--features",
        parse=_count,
        metavar="N",
    )
    min_distance: float | None = option(
        "of subspaces send no two features nearer to each other than this (default 10)", metavar="PX"
    )
    lines: bool = option("send a line through each keypoint, not its position", default=False)
    gravity: Path | None = option("also send gravity: image,x,y,z of down, as `veil gravity` writes", metavar="CSV")
    allow_second_release: bool = option("release an image again with other choices", default=False)


def asks_for_words(asked: AskedProtection) -> bool:
    """Whether words are asked for by one of their options."""
    return not (asked.words is None and asked.epsilon is None and asked.m is None)


def names_form(asked: AskedProtection) -> bool:
    """Whether a form of descriptors is asked for; else the usual one leaves."""
    return asked.obfuscate or asked.no_descriptors or asks_for_words(asked)


def asked_descriptors(
    asked: AskedProtection,
    purpose: Purpose,
    descriptor: str,
    device: Device,
    images: Iterable[tuple[str, bytes]],
    *,
    allow_private_dictionary: bool = False,
) -> HideInSubspaces | HideInWords:
    """The protection of descriptors that the options ask for, or the usual one for the purpose.

    `descriptor` is that of the features, `images` are names and digests of what will be released.
    """
    if asked.no_descriptors:
        sent = asked.features_sent
        return HideInWords.positions_alone() if sent is None else HideInWords.positions_alone(None if sent == "all" else sent)
    if asks_for_words(asked) or not (asked.obfuscate or purpose == "map"):
        return _in_words(asked, descriptor, device, images, allow_private_dictionary)
    return HideInSubspaces(
        codebook=read_codebook(asked.codebook) if asked.codebook else None,
        decoys=asked_decoys(asked.decoys) if asked.decoys else None,
    )


def asked_decoys(path: Path) -> Codebook | DecoyPhotographs:
    """The pool of decoys, or the photographs that give decoys as wholes, which a file holds.

    Raises InputError for two photographs that show one place.
    """
    if not is_features_file(path):
        return read_codebook(path)
    others = list(read_features(path))
    with tracker("comparing decoy photographs", len(others)) as bar:
        pairs = of_one_place([features for _, features in others], progress=lambda *_: bar.update(1))
    if pairs:
        told = ", ".join(f"{others[one][0]} and {others[other][0]}" for one, other in pairs[:3])
        raise InputError(
            f"{len(pairs)} pairs of the {len(others)} decoy photographs in {path} show one place ({told}), in which uploads "
            "would match; extract one photograph of each place"
        )
    return DecoyPhotographs(photographs=tuple(features for _, features in others))


def _in_words(
    asked: AskedProtection,
    descriptor: str,
    device: Device,
    images: Iterable[tuple[str, bytes]],
    allow_private_dictionary: bool,
) -> HideInWords:
    """The usual words, with what --words, --epsilon, --m and --features ask for.

    Raises ReleaseRefused for a dictionary made from the user's own photographs.
    """
    usual = usual_words(descriptor)
    words = replace(
        usual,
        epsilon=usual.epsilon if asked.epsilon is None else asked.epsilon,
        m=usual.m if asked.m is None else asked.m,
        dictionary=usual.book if asked.words in (None, "bundled") else read_codebook(Path(str(asked.words))),
        features_sent=_words_sent(asked),
        allow_private_dictionary=allow_private_dictionary,
    )
    words.image_epsilon(1)  # raises for an impossible epsilon or m, before anything is released
    if words.book.provenance.image_digests:
        device.require_public(words, images)
    return words


def _words_sent(asked: AskedProtection) -> int | None:
    """How many features leave in words; None for all."""
    sent = FEATURES if asked.features_sent is None else asked.features_sent
    return None if sent == "all" else sent


def protection_of(
    asked: AskedProtection,
    purpose: Purpose,
    descriptors: HideInSubspaces | HideInWords,
    features: Features,
    gravity: Mapping[str, np.ndarray],
    name: str,
) -> Protection:
    """The protection of one image, with its gravity where `gravity` knows it by the image's name.

    Raises ReleaseRefused for the usual words of a photograph that no map would find by them.
    """
    if purpose == "localize" and not names_form(asked):
        require_localizable(features, gravity.get(name))
    protection = Protection(descriptors=_fitting(asked, descriptors, features))
    if asked.lines:
        return replace(protection, lines=HideInLines(gravity=gravity.get(name)))
    return replace(protection, gravity=gravity[name]) if name in gravity else protection


def _fitting(
    asked: AskedProtection, descriptors: HideInSubspaces | HideInWords, features: Features
) -> HideInSubspaces | HideInWords:
    """The protection for one image: the profile of subspaces depends on whether its descriptors have 8 bits."""
    if isinstance(descriptors, HideInWords):
        return descriptors
    profile = usual_profile(descriptors.codebook, features, descriptors.decoys, behind_lines=asked.lines)
    usual, sent, apart = usual_selection(profile), asked.features_sent, asked.min_distance
    selection = Selection(
        features=usual.features if sent is None else None if sent == "all" else sent,
        min_distance_px=usual.min_distance_px if apart is None else apart,
    )
    return replace(descriptors, profile=profile, selection=selection)


def require_consistent(asked: AskedProtection, purpose: Purpose) -> None:
    """Raise InputError for options that do not go together, before anything is drawn or entered."""
    if asked.obfuscate and (asked.no_descriptors or asks_for_words(asked)):
        raise InputError("--obfuscate sends subspaces; it does not go with --words, --epsilon, --m or --no-descriptors")
    of_subspaces = asked.codebook or asked.decoys
    of_descriptors = (asked.codebook, asked.decoys, asked.m, asked.words, asked.epsilon, asked.min_distance)
    if asked.no_descriptors and (asked.lines or any(value is not None for value in of_descriptors)):
        raise InputError(
            "--no-descriptors sends positions alone; it goes with --features and --gravity, not with lines or options of "
            "descriptors"
        )
    if asks_for_words(asked) and of_subspaces is not None:
        raise InputError("--codebook and --decoys belong to subspaces; --words, --epsilon and --m send words instead")
    if asks_for_words(asked) and asked.min_distance is not None:
        raise InputError("--min-distance belongs to subspaces: words leave by a random choice (--features)")
    if purpose == "localize" and not names_form(asked):
        if of_subspaces is not None or asked.min_distance is not None:
            raise InputError(
                "--codebook, --decoys and --min-distance belong to subspaces, an obfuscation without proof; send it with "
                "--obfuscate"
            )
        if asked.lines:
            raise InputError(
                "the usual words are hardly found in lines; send words at an epsilon of your own (--epsilon 10), or subspaces "
                "(--obfuscate)"
            )
