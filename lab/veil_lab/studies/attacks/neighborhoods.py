"""Study of the neighborhood attack (Chelani et al. 2024) on lines of every rule, with learned and with true neighbors.

The bound has the nearest keypoints and their classes of distance given; the learned attack takes them from the descriptors. The
null is the bound with neighbors of other features. The broken twin of convergent lines draws each keypoint's anchor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float64

from veil.attacks.claims import Estimates
from veil.attacks.positions.line_neighbors import LineNeighborOptions, neighbor_positions
from veil.attacks.positions.neighbor_field import CLASSES, DISTANCES_PX, DistanceBeliefs, field_positions, told_segments
from veil.attacks.positions.pair_network import PairNetwork
from veil.attacks.positions.segments import pixels
from veil.errors import InputError
from veil.features import Features
from veil.forms import Lines
from veil.mechanisms.lines import (
    ConvergentOptions,
    LineOptions,
    ParallelOptions,
    lift_to_lines,
    normalized_keypoints,
    through_anchors,
)
from veil.mechanisms.public import publish
from veil.randomness import seeded
from veil_lab.studies.attacks.positions import LEVEL_DOWN, NEIGHBORS, all_aligned, true_neighbors

_OPTIONS: Mapping[str, ConvergentOptions | ParallelOptions] = {
    "convergent": ConvergentOptions(),
    "parallel": ParallelOptions(),
}
WITHIN_PX = (10.0, 25.0, 50.0)
# Scale of the distances of neighbors' lines for the estimator that looks for the nearest point, as `positions` has it.
NEAREST_PX = 40.0

# Description of each rule of lines by its name.
RULES: Mapping[str, str] = {
    "uniform": "angles drawn uniformly",
    "mixed": "half of the lines along gravity, as veil draws by default",
    "aligned": "all lines along gravity, which veil does not release",
    "convergent": "through the anchor of the keypoint's half of the picture",
    "parallel": "along gravity in one half of the picture, along the x-axis in the other",
    "convergent-drawn": "as convergent, without the defense: the anchor is drawn for each keypoint",
}
# Description of each attack by its name; the blind guess first.
ATTACKS: Mapping[str, str] = {
    "midpoint": "the middle of the line in the image",
    "random neighbors": f"null: the {NEIGHBORS} nearest keypoints of other features are given",
    "true neighbors, nearest point": f"the {NEIGHBORS} nearest keypoints are given; where their lines come closest",
    "true neighbors": f"bound: the {NEIGHBORS} nearest keypoints and their classes of distance are given",
    "learned neighbors": "classes of distance told by a network from the descriptors",
}


@dataclass(frozen=True, kw_only=True, eq=False)
class NeighborhoodTrial:
    """Errors (pixels; NaN where undecided) of one attack on one photograph's lines of one rule."""

    image: str
    rule: str
    attack: str
    errors_px: Float64[np.ndarray, "_"]


@dataclass(frozen=True, kw_only=True)
class NeighborhoodRow:
    """Errors of one attack on lines of one rule, over all photographs.

    The median is over decided features, and None without any; `within` holds shares of *all* features by their largest error.
    """

    rule: str
    attack: str
    photographs: int
    features: int
    undecided: int
    median_px: float | None
    within: Mapping[str, float]

    def as_json(self) -> dict:
        """The stable record of docs/reference/json.md."""
        return {
            "rule": self.rule,
            "attack": self.attack,
            "photographs": self.photographs,
            "features": self.features,
            "undecided": self.undecided,
            "median_px": self.median_px,
            "within": dict(self.within),
        }


def neighborhood_trials(
    name: str,
    features: Features,
    *,
    network: PairNetwork | None,
    gravity: Float64[np.ndarray, "3"] | None = None,
    seed: int,
    rules: Sequence[str] = tuple(RULES),
    attacks: Sequence[str] = tuple(ATTACKS),
) -> list[NeighborhoodTrial]:
    """Trials of `attacks` on the photograph `name`, of lines of each of the `rules`.

    `network` tells distances from raw descriptors; without it no neighbors are learned. `gravity` is down in the camera's frame
    (None: a level camera). `seed` draws lines and the null's neighbors. Raises InputError for unknown rules or attacks, or
    fewer than `NEIGHBORS` + 2 features.
    """
    for given, known in ((rules, RULES), (attacks, ATTACKS)):
        if unknown := sorted(set(given) - set(known)):
            raise InputError(f"there is no {', '.join(unknown)}; there are {', '.join(known)}")
    if len(features) < NEIGHBORS + 2:
        raise InputError(f"the study of neighborhoods needs {NEIGHBORS + 2} features a photograph, got {len(features)}")
    down = np.array(LEVEL_DOWN) if gravity is None else gravity
    case = _Photograph(features=features, name=name, seed=seed, learned=_learned(features, network, attacks))
    trials = []
    for rule in rules:
        lines = lines_by_rule(features, rule, gravity=down, name=name, seed=seed)
        for attack in attacks:
            if attack == "learned neighbors" and network is None:
                continue
            estimates = _RUNS[attack](case, lines)
            errors = np.linalg.norm(estimates.points - features.keypoints.astype(np.float64), axis=1)
            trials.append(NeighborhoodTrial(image=name, rule=rule, attack=attack, errors_px=errors))
    return trials


def neighborhood_rows(trials: Sequence[NeighborhoodTrial]) -> list[NeighborhoodRow]:
    """Rows of errors, one for each rule and attack, in the order of the trials."""
    groups: dict[tuple[str, str], list[NeighborhoodTrial]] = {}
    for trial in trials:
        groups.setdefault((trial.rule, trial.attack), []).append(trial)
    rows = []
    for (rule, attack), group in groups.items():
        errors = np.concatenate([trial.errors_px for trial in group])
        decided = np.isfinite(errors)
        rows.append(
            NeighborhoodRow(
                rule=rule,
                attack=attack,
                photographs=len(group),
                features=len(errors),
                undecided=int((~decided).sum()),
                median_px=float(np.median(errors[decided])) if decided.any() else None,
                within={f"{limit:g}": float((errors[decided] <= limit).sum() / len(errors)) for limit in WITHIN_PX},
            )
        )
    return rows


def lines_by_rule(features: Features, rule: str, *, gravity: Float64[np.ndarray, "3"], name: str, seed: int) -> Lines:
    """Lines of a photograph by the rule of this name (one of `RULES`), drawn by `seed` and the photograph's `name`."""
    randomness = seeded(f"neighborhoods|{seed}|{name}|{rule}")
    if rule == "aligned":
        return all_aligned(features, gravity)
    if rule == "convergent-drawn":
        xy = normalized_keypoints(features)
        drawn = np.random.default_rng([seed, *name.encode()]).integers(2, size=len(xy))
        normals = through_anchors(xy, drawn, features.camera)
        offsets = -(normals * xy).sum(axis=1, keepdims=True)
        coefficients = np.hstack([normals, offsets]).astype(np.float32)
        none = np.zeros(len(xy), dtype=bool)
        return Lines(coefficients=coefficients, aligned=none, gravity=None, releasable=False)
    known = gravity if rule in ("mixed", "parallel") else None
    options = _OPTIONS.get(rule, LineOptions())
    return lift_to_lines(features, gravity=known, randomness=randomness, options=options)


def true_beliefs(keypoints: np.ndarray, count: int) -> DistanceBeliefs:
    """Certain beliefs: for each feature one at each of the `count` nearest other positions, in its class of distance."""
    rows = true_neighbors(keypoints, count).rows
    distance = np.linalg.norm(keypoints[rows] - keypoints[:, None], axis=2)
    return DistanceBeliefs(rows=rows, probabilities=np.eye(CLASSES)[np.searchsorted(DISTANCES_PX, distance, side="right")])


@dataclass(frozen=True, kw_only=True, eq=False)
class _Photograph:
    """A photograph whose lines are attacked, with what a network believes of its features' distances, if there is one."""

    features: Features
    name: str
    seed: int
    learned: DistanceBeliefs | None


def _learned(features: Features, network: PairNetwork | None, attacks: Sequence[str]) -> DistanceBeliefs | None:
    """Beliefs of the network about the features' distances; None where they are not asked for."""
    if network is None or "learned neighbors" not in attacks:
        return None
    return network.beliefs(publish(features).vectors.astype(np.float32), camera=features.camera)


def _middle(case: _Photograph, lines: Lines) -> Estimates:
    """The middle of each line's segment."""
    where = told_segments(lines, case.features.camera)
    points = pixels(where.at(where.between(np.full(len(lines), 0.5))), case.features.camera)
    return Estimates(points=points, confidence=np.zeros(len(lines)), certified=np.zeros(len(lines), dtype=bool))


def _nearest_point(case: _Photograph, lines: Lines) -> Estimates:
    """Where the lines of the true neighbors come closest, as in the paper."""
    known = true_neighbors(case.features.keypoints, NEIGHBORS)
    return neighbor_positions(lines, known, camera=case.features.camera, options=LineNeighborOptions(radius_px=NEAREST_PX))


def _true(case: _Photograph, lines: Lines) -> Estimates:
    """The likeliest positions given the true neighbors."""
    return field_positions(lines, true_beliefs(case.features.keypoints, NEIGHBORS), camera=case.features.camera)


def _random(case: _Photograph, lines: Lines) -> Estimates:
    """The likeliest positions given neighbors of other features, in the same classes of distance."""
    beliefs = true_beliefs(case.features.keypoints, NEIGHBORS)
    other = np.random.default_rng([case.seed, *case.name.encode(), 1]).permutation(len(beliefs))
    return field_positions(lines, replace(beliefs, rows=other[beliefs.rows]), camera=case.features.camera)


def _by_network(case: _Photograph, lines: Lines) -> Estimates:
    """The likeliest positions given what the network believes."""
    assert case.learned is not None
    return field_positions(lines, case.learned, camera=case.features.camera)


_RUNS: Mapping[str, Callable[[_Photograph, Lines], Estimates]] = {
    "midpoint": _middle,
    "random neighbors": _random,
    "true neighbors, nearest point": _nearest_point,
    "true neighbors": _true,
    "learned neighbors": _by_network,
}
assert tuple(_RUNS) == tuple(ATTACKS)
