"""The protection that the options of `veil privatize` ask for."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from veil.errors import InputError
from veil.features import Features
from veil.files.codebooks import read_codebook
from veil.files.features import read_features
from veil.mechanisms.lines import LineRule, rule_of
from veil.mechanisms.profile import Profile, hardened, paper
from veil.mechanisms.selection import Selection, usual_selection
from veil.pipelines.device import Device
from veil.pipelines.protection import SUBSET_SIZE, HideInSubspaces, HideInWords, positions_alone


def _chosen_profile(arguments: argparse.Namespace, *, quantized: bool) -> Profile:
    """The profile that --profile, --m and --lifting ask for. Raises InputError for options that do not fit together."""
    if arguments.profile == "paper":
        return paper(arguments.m if arguments.m is not None else 4, arguments.lifting or "sub-hybrid")
    if arguments.m is not None or arguments.lifting is not None:
        raise InputError("--m and --lifting belong to --profile paper; the hardened profile is fixed")
    return hardened(quantized=quantized)


def asked_descriptors(arguments: argparse.Namespace, device: Device) -> HideInSubspaces | HideInWords:
    """The protection of descriptors that the options ask for."""
    if arguments.no_descriptors:
        sent = arguments.features_sent
        return positions_alone() if sent is None else positions_alone(None if sent == "all" else sent)
    return _in_words(arguments, device) if arguments.words else _books(arguments)


def _in_words(arguments: argparse.Namespace, device: Device) -> HideInWords:
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
        device.require_public(words, ((name, item.image_digest) for name, item in read_features(arguments.features)))
    return words


def _books(arguments: argparse.Namespace) -> HideInSubspaces:
    """The protection in subspaces with the codebook and decoys that the options name; its profile depends on the image."""
    return HideInSubspaces(
        codebook=arguments.codebook and read_codebook(arguments.codebook),
        decoys=arguments.decoys and read_codebook(arguments.decoys),
    )


def fitting(
    arguments: argparse.Namespace, descriptors: HideInSubspaces | HideInWords, features: Features
) -> HideInSubspaces | HideInWords:
    """The protection for one image: the profile of subspaces depends on whether its descriptors have 8 bits."""
    if isinstance(descriptors, HideInWords):
        return descriptors
    profile = _chosen_profile(arguments, quantized=features.is_quantized)
    usual = usual_selection(profile)
    asked, apart = arguments.features_sent, arguments.min_distance
    selection = Selection(
        features=usual.features if asked is None else None if asked == "all" else asked,
        min_distance_px=usual.min_distance_px if apart is None else apart,
    )
    return replace(descriptors, profile=profile, selection=selection)


def asked_line_rule(arguments: argparse.Namespace) -> LineRule:
    """The rule of lines that --line-rule and --aligned-share ask for. Raises RangeError for an impossible share."""
    share = {} if arguments.aligned_share is None else {"aligned_share": arguments.aligned_share}
    return rule_of(arguments.line_rule or "random", **share)


def require_consistent(arguments: argparse.Namespace) -> None:
    """Raise InputError for options that do not go together, before anything is drawn or entered."""
    if arguments.line_rule and not arguments.lines:
        raise InputError("--line-rule belongs to --lines: without lines, positions are sent")
    if arguments.words and arguments.line_rule in ("convergent", "parallel"):
        raise InputError("--line-rule convergent and parallel belong to subspaces: words with such lines are not localized")
    if arguments.aligned_share is not None and arguments.line_rule in ("convergent", "parallel"):
        raise InputError("--aligned-share belongs to random lines: those of two halves of the picture are not drawn")
    subspaces = ("profile", "lifting", "codebook", "decoys")
    of_descriptors = (*subspaces, "m", "words", "epsilon", "min_distance")
    if arguments.no_descriptors and (arguments.lines or any(getattr(arguments, name) is not None for name in of_descriptors)):
        raise InputError(
            "--no-descriptors sends positions alone; it goes with --features and --gravity, not with lines or options of "
            "descriptors"
        )
    if arguments.words and any(getattr(arguments, name) is not None for name in subspaces):
        raise InputError("--profile, --lifting, --codebook and --decoys belong to subspaces; --words sends words instead")
    if arguments.words and arguments.min_distance is not None:
        raise InputError("--min-distance belongs to subspaces: words leave by a random choice (--features)")
    if not arguments.words and (arguments.epsilon is not None or arguments.allow_private_dictionary):
        raise InputError("--epsilon and --allow-private-dictionary belong to --words; subspaces have no epsilon")
    if arguments.output.exists() and not arguments.output.is_dir():
        raise InputError(f"cannot write to {arguments.output}: it is not a folder; choose another place or free it")
