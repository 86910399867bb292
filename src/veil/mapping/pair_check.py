"""The check of a map of positions against the verified pairs that it was made from."""

from __future__ import annotations

from collections.abc import Mapping, Set

import numpy as np
from jaxtyping import Float64

from veil.map_check import EXPLAINED, MapCheck
from veil.mapping.agreement import Pair, confirmed
from veil.mapping.check import gravity_agreement, rotation_disagreement, step_ratio, thinnest_cut
from veil.mapping.uncertainty import position_uncertainty
from veil.mapping.verified import VerifiedPair
from veil.scene import Scene

# Why an image is in no map, where nothing more is known.
TOO_FEW = "too few matches that chance does not explain"


def contradicting(shares: Mapping[Pair, float], pairs: Mapping[Pair, VerifiedPair]) -> frozenset[Pair]:
    """Pairs that a map does not explain although a cycle of rotations confirms them, by the shares that it explains."""
    return confirmed([pair for pair, share in shares.items() if share < EXPLAINED], pairs)


def agreement_weights(shares: Mapping[Pair, float], pairs: Mapping[Pair, VerifiedPair]) -> dict[Pair, float]:
    """Weights of pairs for and against their images' being together, for `veil.mapping.agreement.consistent_groups`."""
    against = contradicting(shares, pairs)
    return {
        pair: len(pairs[pair].inliers) * (2 * share - 1)
        for pair, share in shares.items()
        if share >= EXPLAINED or pair in against
    }


def checked(
    scene: Scene,
    shares: Mapping[Pair, float],
    images: Set[str],
    pairs: Mapping[Pair, VerifiedPair],
    gravity: Mapping[str, Float64[np.ndarray, "3"]],
    left_out: Mapping[str, str],
) -> MapCheck:
    """Check of a map of `images` by the `shares` of its pairs that it explains, and by readings of gravity.

    `left_out` says why images are not in the map, where a reason is known.
    """
    counts = {pair: len(pairs[pair].inliers) for pair in shares}
    gravity_deg, agreeing = gravity_agreement(scene, gravity)
    missing = dict(left_out)
    for name in sorted(images - set(scene.images) - set(missing)):
        missing[name] = TOO_FEW
    return MapCheck(
        pairs=len(shares),
        explained_pairs=sum(share >= EXPLAINED for share in shares.values()),
        contradicting_pairs=len(contradicting(shares, pairs)),
        explained_matches=sum(counts[p] * s for p, s in shares.items()) / max(1, sum(counts.values())),
        neck=None if (cut := thinnest_cut(scene)) is None else cut.points,
        uncertainty=position_uncertainty(scene),
        step_ratio=step_ratio(scene),
        rotation_deg=rotation_disagreement(scene, pairs),
        gravity_deg=gravity_deg,
        gravity_agreeing=agreeing,
        left_out=missing,
    )
