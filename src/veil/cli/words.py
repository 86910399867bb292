"""`veil privatize --words`: which dictionary and mechanism, and what people should know of such a release."""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass
from pathlib import Path

from veil.codebooks.codebook import Codebook
from veil.errors import InputError, ReleaseRefused
from veil.features import Features
from veil.files.client import Ledger
from veil.files.codebooks import bundled_codebook, read_codebook
from veil.files.features import read_features
from veil.ldp.budget import outward
from veil.ldp.composition import composed_epsilon
from veil.ldp.mechanism import SubsetMechanism
from veil.mechanisms.release import PRIVATE_DICTIONARY, HideInLines, WordRelease, made_from, privatize_words
from veil.randomness import Secure

SUBSET_SIZE, DELTA = 2, 1e-6
# A sent word that is the true one with more than this is no longer hidden among others (traps L15).
MAX_POSTERIOR = 0.25


@dataclass(frozen=True, kw_only=True, eq=False)
class Words:
    """What all images of one `veil privatize --words` share."""

    mechanism: SubsetMechanism
    dictionary: Codebook
    features_sent: int | None
    delta: float
    allow_private: bool

    def release(self, features: Features, source: Secure, lines: HideInLines | None) -> WordRelease:
        """One image in words."""
        return privatize_words(
            features,
            mechanism=self.mechanism,
            dictionary=self.dictionary,
            chance=source,
            lines=lines,
            features_sent=self.features_sent,
            allow_private_dictionary=self.allow_private,
        )

    def image_epsilon(self, features: int) -> float:
        """Epsilon at delta of so many features."""
        return composed_epsilon({self.mechanism: features}, self.delta)

    def facts(self) -> dict:
        """For machines."""
        return {
            "words": self.mechanism.words,
            "m": self.mechanism.m,
            "epsilon": self.mechanism.epsilon,
            "delta": self.delta,
            "truth": float(self.mechanism.truth),
            "posterior": self.mechanism.posterior,
            "dictionary": self.dictionary.digest,
        }

    def notes(self) -> list[str]:
        """For people: what epsilon means here, and where it means little."""
        truth, posterior = outward(float(self.mechanism.truth), 3), outward(self.mechanism.posterior, 3)
        if math.isinf(self.mechanism.epsilon):
            return [
                "warning: epsilon is infinite: the nearest word of each feature is sent for certain. This is no privacy; words "
                "can be inverted into images almost like descriptors"
            ]
        said = [
            f"epsilon {outward(self.mechanism.epsilon, 12)} for each feature: {self.mechanism.m} of {self.mechanism.words} "
            f"words are sent, the true one among them with probability {truth}; a word that is sent is the true one with "
            f"probability {posterior}, if all were equally likely before"
        ]
        if self.mechanism.posterior > MAX_POSTERIOR:
            said.append(
                f"warning: the true word is among those sent with probability {truth}, epsilon alone says little; choose a "
                "smaller epsilon (`veil budget plan`)"
            )
        return said


def chosen_words(arguments: argparse.Namespace, ledger: Ledger) -> Words:
    """What --words and the options beside it ask for.

    Raises ReleaseRefused if the dictionary was made from photographs of the file, or from any that the ledger knows, unless
    forced (traps L8).
    """
    if arguments.epsilon is None:
        raise InputError(
            "--words needs --epsilon; `veil budget plan` shows what an epsilon of the image allows for each feature"
        )
    dictionary = bundled_codebook() if str(arguments.words) == "bundled" else read_codebook(Path(arguments.words))
    m = SUBSET_SIZE if arguments.m is None else arguments.m
    words = Words(
        mechanism=SubsetMechanism(words=len(dictionary), epsilon=arguments.epsilon, m=m),
        dictionary=dictionary,
        features_sent=arguments.features_sent,
        delta=arguments.delta,
        allow_private=arguments.allow_private_dictionary,
    )
    words.image_epsilon(1)  # raises for an impossible delta, before anything is released
    if not words.allow_private and dictionary.provenance.image_digests:
        _require_public(dictionary, arguments.features, ledger)
    return words


def _require_public(dictionary: Codebook, path: Path, ledger: Ledger) -> None:
    private = [name for name, features in read_features(path) if made_from(dictionary, features.image_digest)]
    private += [entry.name for entry in ledger.entries() if made_from(dictionary, bytes.fromhex(entry.image_digest))]
    if private:
        names = sorted(set(private))
        raise ReleaseRefused(
            f"the dictionary was made from {len(names)} of your own photographs ({', '.join(names[:3])}): "
            f"{PRIVATE_DICTIONARY}, or pass --allow-private-dictionary if these photographs are public anyway"
        )
