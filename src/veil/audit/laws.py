"""Laws that outcomes of attacks obey on every photograph, whatever they recover.

A broken law is no result: an attack, its scoring or the truth is at fault, or chance is. Audits and studies print it. Each law
is tested at three standard deviations, which chance exceeds in some hundreds of audits once.

Theory: audit.md#laws.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

import numpy as np
from jaxtyping import Bool, Float64, Int64

from veil.attacks.attack import Attempt
from veil.attacks.claims import NamedWords
from veil.audit.finding import RECOVERED_WITHIN, RECOVERED_WITHIN_PX
from veil.audit.run import Examined
from veil.forms import Subsets
from veil.ldp.mechanism import SubsetMechanism

Name = TypeVar("Name", str, tuple[str, str])

SIGMAS = 3.0
# Attacks that know all that others do, and more.
SPECIAL_CASES = {
    "context": ("modes",),
    "same photograph": ("modes",),
    "matched candidates": ("modes", "matched views"),
    "neighbors": ("posterior",),
}
# Distances to a descriptor, relative to its length, within which no special case may recover more.
COMPARED_WITHIN = (RECOVERED_WITHIN, 0.2, 0.4)
# Largest share of an attack's certificates that may be wrong.
FALSE_CERTIFICATES = 0.01


def broken_laws(examined: Sequence[Examined]) -> list[str]:
    """Sentences on the laws that attacks on some releases break; none where all hold, or where the originals are not known."""
    known = [release for release in examined if release.truth is not None]
    return [*_words_off_their_law(known), *_below_special_cases(known), *_false_certificates(known)]


def lost_with_more(alone: Sequence[Examined], together: Sequence[Examined]) -> list[str]:
    """Sentences on the attacks that recover less of a release where more uploads are known beside it.

    `alone` and `together` are the same releases in the same order, without and with other uploads.
    """
    pairs = [
        (attack.name, recovered(one, attempt), recovered(many, more))
        for one, many in zip(alone, together, strict=True)
        if one.truth is not None and many.truth is not None
        for attack, attempt in one.attempts
        for other, more in many.attempts
        if other is attack and np.array_equal(attempt.rows, more.rows)
    ]
    return [
        f"{name} recovers {int(after.sum())} of {len(after)} features with other uploads, and {int(before.sum())} without them"
        for name, before, after in _by_name(pairs)
        if _is_less(after, before)
    ]


def recovered(release: Examined, attempt: Attempt, *, within: float = RECOVERED_WITHIN) -> Bool[np.ndarray, "features"]:
    """Mask of the features of an attempt that count as recovered; none where it makes no claim that the truth can decide.

    `within` is the largest error of a descriptor, relative to its length.
    """
    assert release.truth is not None
    truth = release.truth.take(attempt.rows)
    if isinstance(attempt.claim, NamedWords):
        return np.zeros(len(attempt.rows), dtype=bool) if truth.words is None else attempt.claim.ids == truth.words
    if attempt.estimates is None:
        return np.zeros(len(attempt.rows), dtype=bool)
    points = attempt.estimates.points
    is_position = points.shape[1] == 2
    target, limit = (truth.keypoints, RECOVERED_WITHIN_PX) if is_position else (truth.descriptors, within)
    return np.linalg.norm(points - target, axis=1) < limit


def first_sent(mechanism: SubsetMechanism, words: Int64[np.ndarray, "features"]) -> Float64[np.ndarray, "features"]:
    """Probability that each true word is the first of its subset, in the order of ids: the one that a guess names.

    It is `truth` times the chance that the m - 1 other words, which are uniform, all come after it; p/m on the average of a
    uniform true word.
    """
    size = mechanism.dictionary_size
    behind = np.ones(len(words))
    for drawn in range(mechanism.m - 1):
        behind *= np.maximum(size - 1 - words - drawn, 0) / (size - 1 - drawn)
    return float(mechanism.truth) * behind


def _words_off_their_law(examined: Sequence[Examined]) -> Iterator[str]:
    """The posterior attack names one word of each subset, and the mechanism says how often it is the true one (Eq. 3)."""
    right, expected, variance, total = 0, 0.0, 0.0, 0
    for release in examined:
        form = release.message.form
        assert release.truth is not None
        for attack, attempt in release.attempts:
            if attack.name == "posterior" and isinstance(form, Subsets) and release.truth.words is not None:
                chance = first_sent(form.mechanism, release.truth.words[attempt.rows])
                right += int(recovered(release, attempt).sum())
                expected += float(chance.sum())
                variance += float((chance * (1 - chance)).sum())
                total += len(chance)
    if total and abs(right - expected) > SIGMAS * variance**0.5 + 1:
        yield f"posterior names {right} of {total} words, where the mechanism's law gives {expected:.0f}"


def _below_special_cases(examined: Sequence[Examined]) -> Iterator[str]:
    pairs = [
        (
            (attack.name, other.name),
            within,
            recovered(release, attempt, within=within),
            recovered(release, special, within=within),
        )
        for within in COMPARED_WITHIN
        for release in examined
        for attack, attempt in release.attempts
        for other, special in release.attempts
        if other.surface == attack.surface
        and other.name in SPECIAL_CASES.get(attack.name, ())
        and np.array_equal(attempt.rows, special.rows)
    ]
    broken: set[tuple[str, str]] = set()
    for within in COMPARED_WITHIN:
        for names, general, special in _by_name([(of, one, two) for of, at, one, two in pairs if at == within]):
            if names not in broken and _is_less(general, special):
                broken.add(names)
                yield (
                    f"{names[0]} recovers {int(general.sum())} of {len(general)} features, and {names[1]}, a special case "
                    f"of it, {int(special.sum())}, where descriptors count within {within:g} of their length"
                )


def _false_certificates(examined: Sequence[Examined]) -> Iterator[str]:
    """Certificates of descriptors and words that the truth contradicts, dither and quantization allowed for."""
    counts: dict[str, tuple[int, int]] = {}
    for release in examined:
        for attack, attempt in release.attempts:
            if attempt.estimates is None:
                continue
            certified = attempt.estimates.certified
            wrong, every = counts.get(attack.name, (0, 0))
            counts[attack.name] = wrong + int((certified & ~recovered(release, attempt)).sum()), every + int(certified.sum())
    for name, (wrong, every) in counts.items():
        allowed = FALSE_CERTIFICATES * every
        if wrong > allowed + SIGMAS * allowed**0.5:
            yield f"{name} certifies {every} features, of which {wrong} are wrong; at most {FALSE_CERTIFICATES:.0%} may be"


def _by_name(
    pairs: Sequence[tuple[Name, np.ndarray, np.ndarray]],
) -> Iterator[tuple[Name, Bool[np.ndarray, "features"], Bool[np.ndarray, "features"]]]:
    """Masks of each attack, or pair of attacks, over all releases."""
    for name in dict.fromkeys(name for name, _, _ in pairs):
        both = [masks for other, *masks in pairs if other == name]
        yield name, np.concatenate([first for first, _ in both]), np.concatenate([second for _, second in both])


def _is_less(mask: np.ndarray, than: np.ndarray) -> bool:
    """Whether fewer features are recovered, beyond the chance of features that one attack alone recovers (McNemar)."""
    lost, won = int((than & ~mask).sum()), int((mask & ~than).sum())
    return lost - won > SIGMAS * max(1.0, (lost + won) ** 0.5)
