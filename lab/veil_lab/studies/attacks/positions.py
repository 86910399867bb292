"""Study of attacks on hidden positions: errors in pixels of recovered keypoints on photographs, beside those of blind guesses.

Lines are drawn at several shares of lines along gravity, as veil draws them (one line a position, the same each time) and with
each of its defenses taken away: a line of its own for every feature, a second release with fresh draws, the detector's order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64, Int64

from veil.attacks.claims import Estimates
from veil.attacks.intersection.repeat import repeat_positions
from veil.attacks.positions.colocated_keypoints import twins
from veil.attacks.positions.line_density import DensityOptions, density_positions
from veil.attacks.positions.line_neighbors import LineNeighborOptions, Neighborhoods, neighbor_positions
from veil.attacks.positions.order import positions_by_rank
from veil.attacks.positions.segments import pixels, segments
from veil.errors import InputError, RangeError
from veil.features import Features
from veil.forms import Lines
from veil.mechanisms.lines import LineOptions, along_gravity, lift_to_lines, normalized_keypoints
from veil.randomness import seeded

LEVEL_DOWN = (0.0, 1.0, 0.0)  # the direction of gravity in the frame of a camera that is held level
SHARES = (0.0, 0.5, 1.0)  # of lines along gravity
WITHIN_PX = (1.0, 5.0, 10.0, 20.0)
NEIGHBORS = 10  # true neighbors that the bound is given
# The density estimator of the paper; the default one has the least error on other photographs.
PAPER_DENSITY = DensityOptions(estimator="crossings", decide="peak", bandwidth_share=0.03)

# Description of each attack by its name, in the order of tables and figures; blind guesses first.
ATTACKS: Mapping[str, str] = {
    "chance": "a random point of the line in the image",
    "midpoint": "the middle of the line in the image",
    "density": "density of keypoints, median on the line",
    "density peak": "density of crossings, peak on the line",
    "true neighbors": f"bound: the {NEIGHBORS} nearest keypoints are given",
    "twins": "neighbors found by their descriptors",
    "twins, own lines": "the same, without the defense: each feature has its own line",
    "order": "position by rank in the released (shuffled) order",
    "order, sorted": "the same, without the defense: sorted by x",
    "repeat": "two memoized releases",
    "repeat, fresh": "the same, without the defense: two fresh draws",
}
BLIND = ("chance", "midpoint")
BROKEN = ("twins, own lines", "order, sorted", "repeat, fresh")


@dataclass(frozen=True, kw_only=True, eq=False)
class PositionTrial:
    """Errors of one attack on the lines of one photograph, at one share of lines along gravity.

    `offsets` are estimated minus true keypoints (pixels; x, y), NaN where the attack is undecided.
    """

    image: str
    aligned_share: float
    attack: str
    offsets: Float64[np.ndarray, "_ 2"]
    certified: Bool[np.ndarray, "_"]

    @property
    def errors_px(self) -> Float64[np.ndarray, "_"]:
        """Distances between estimated and true keypoints, in pixels; NaN where undecided."""
        return np.linalg.norm(self.offsets, axis=1)


@dataclass(frozen=True, kw_only=True)
class PositionRow:
    """Errors of one attack at one share of lines along gravity, over all photographs.

    Medians and the mean are over decided features. `within` holds shares of *all* features by their largest error in pixels.
    `wrongly_certified` counts certified positions that are off by more than a pixel.
    """

    aligned_share: float
    attack: str
    photographs: int
    features: int
    undecided: int
    certified: int
    wrongly_certified: int
    median_px: float | None
    mean_px: float | None
    median_horizontal_px: float | None
    within: Mapping[str, float]

    def as_json(self) -> dict:
        """The stable record of docs/reference/json.md."""
        return {
            "aligned_share": self.aligned_share,
            "attack": self.attack,
            "photographs": self.photographs,
            "features": self.features,
            "undecided": self.undecided,
            "certified": self.certified,
            "wrongly_certified": self.wrongly_certified,
            "median_px": self.median_px,
            "mean_px": self.mean_px,
            "median_horizontal_px": self.median_horizontal_px,
            "within": dict(self.within),
        }


def position_trials(
    name: str,
    features: Features,
    *,
    gravity: Float64[np.ndarray, "3"] | None = None,
    shares: Sequence[float] = SHARES,
    seed: int,
    attacks: Sequence[str] = tuple(ATTACKS),
) -> list[PositionTrial]:
    """Trials of `attacks` on the photograph `name`, at every share of lines along gravity in `shares`.

    `gravity` is the unit vector of down in the camera's frame (None: a level camera). `seed` draws lines and guesses. Attacks
    by twins need SIFT descriptors of 128 numbers and are left out for others. Raises InputError for fewer than `NEIGHBORS` + 2
    features or unknown attacks, RangeError for shares outside [0, 1].
    """
    unknown = sorted(set(attacks) - set(ATTACKS))
    if unknown:
        raise InputError(f"there is no attack on positions called {', '.join(unknown)}; there are {', '.join(ATTACKS)}")
    if len(features) < NEIGHBORS + 2:
        raise InputError(f"the study of positions needs {NEIGHBORS + 2} features a photograph, got {len(features)}")
    if not all(0 <= share <= 1 for share in shares):
        raise RangeError(f"shares of lines along gravity must lie between 0 and 1, got {tuple(shares)!r}")
    down = np.array(LEVEL_DOWN) if gravity is None else gravity
    trials = []
    for share in shares:
        case = _AttackedPhotograph(name=name, features=features, gravity=down, share=share, seed=seed)
        for attack in attacks:
            if "twins" in attack and features.space.dim != 128:
                continue
            estimates = case.attacked(attack)
            offsets = estimates.points - features.keypoints.astype(np.float64)
            trials.append(
                PositionTrial(image=name, aligned_share=share, attack=attack, offsets=offsets, certified=estimates.certified)
            )
    return trials


def position_rows(trials: Sequence[PositionTrial]) -> list[PositionRow]:
    """Rows of errors, one for each share of lines along gravity and attack, in the order of the trials."""
    return [_row(group) for group in _groups(trials).values()]


def position_histograms(
    trials: Sequence[PositionTrial], edges_px: Float64[np.ndarray, "edges"]
) -> dict[tuple[float, str], Float64[np.ndarray, "bins"]]:
    """Shares of features whose error lies in each bin, by (share of lines along gravity, attack).

    They are shares of all features, of which undecided ones are in no bin. Errors below the first of `edges_px` count in the
    first bin, those above the last edge in the last bin. Raises RangeError unless the edges ascend.
    """
    if not (len(edges_px) > 1 and (np.diff(edges_px) > 0).all()):
        raise RangeError("the edges of a histogram must be two or more, in ascending order")
    histograms = {}
    for key, group in _groups(trials).items():
        errors = np.concatenate([trial.errors_px for trial in group])
        clipped = np.clip(errors[np.isfinite(errors)], edges_px[0], edges_px[-1])
        histograms[key] = np.histogram(clipped, edges_px)[0] / max(len(errors), 1)
    return histograms


def _groups(trials: Sequence[PositionTrial]) -> dict[tuple[float, str], list[PositionTrial]]:
    """Trials by share of lines along gravity and attack."""
    groups: dict[tuple[float, str], list[PositionTrial]] = {}
    for trial in trials:
        groups.setdefault((trial.aligned_share, trial.attack), []).append(trial)
    return groups


def _row(group: Sequence[PositionTrial]) -> PositionRow:
    """The row of the trials of one attack at one share."""
    offsets = np.concatenate([trial.offsets for trial in group])
    certified = np.concatenate([trial.certified for trial in group])
    errors = np.linalg.norm(offsets, axis=1)
    decided = np.isfinite(errors)
    return PositionRow(
        aligned_share=group[0].aligned_share,
        attack=group[0].attack,
        photographs=len(group),
        features=len(errors),
        undecided=int((~decided).sum()),
        certified=int(certified.sum()),
        wrongly_certified=int((errors[certified] > 1).sum()),
        median_px=float(np.median(errors[decided])) if decided.any() else None,
        mean_px=float(np.mean(errors[decided])) if decided.any() else None,
        median_horizontal_px=float(np.median(np.abs(offsets[decided, 0]))) if decided.any() else None,
        within={f"{limit:g}": float((errors[decided] <= limit).sum() / max(len(errors), 1)) for limit in WITHIN_PX},
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class _AttackedPhotograph:
    """One photograph whose positions are hidden in lines, of which `share` are along gravity."""

    name: str
    features: Features
    gravity: Float64[np.ndarray, "_"]
    share: float
    seed: int

    def attacked(self, attack: str) -> Estimates:
        """Estimates by the attack of this name, in the order of the features, whatever order the attack saw."""
        return _RUNS[attack](self)

    def lines(self, draw: str = "once") -> Lines:
        """The photograph's lines as veil draws them, one for each position; `draw` names the draw.

        At share 1, which veil refuses, all lines are along gravity.
        """
        features = self.features
        case = f"positions|{self.seed}|{self.name}|{self.share!r}|{draw}"
        if self.share < 1:
            options = LineOptions(aligned_share=self.share)
            return lift_to_lines(features, gravity=self.gravity, randomness=seeded(case), options=options)
        return all_aligned(features, self.gravity)

    def own_lines(self) -> Lines:
        """Lines that are drawn for each feature by itself, also where several features are at one position."""
        turn = occurrence(self.features.keypoints)
        layers = [self.lines(f"own {k}") for k in range(int(turn.max()) + 1)]
        coefficients = np.stack([layer.coefficients for layer in layers])[turn, np.arange(len(turn))]
        aligned = np.stack([layer.aligned for layer in layers])[turn, np.arange(len(turn))]
        return Lines(coefficients=coefficients, aligned=aligned, gravity=layers[0].gravity, releasable=False)

    def random(self) -> np.random.Generator:
        """The generator of the photograph's guesses and permutations."""
        return np.random.default_rng([self.seed, *self.name.encode()])


def all_aligned(features: Features, gravity: Float64[np.ndarray, "3"]) -> Lines:
    """Lines of a study that all run along gravity, which veil does not release: they show no height.

    Raises InputError for a keypoint in the vanishing point of gravity.
    """
    xy = normalized_keypoints(features)
    normals = along_gravity(xy, gravity)
    if not np.isfinite(normals).all():
        raise InputError("a keypoint lies in the vanishing point of gravity, where no line has a direction")
    offsets = -(normals * xy).sum(axis=1, keepdims=True)
    return Lines(
        coefficients=np.hstack([normals, offsets]).astype(np.float32),
        aligned=np.ones(len(xy), dtype=bool),
        gravity=gravity,
        releasable=False,
    )


def occurrence(keypoints: np.ndarray) -> Int64[np.ndarray, "features"]:
    """Number of earlier features at the same position, for each feature."""
    _, place = np.unique(keypoints, axis=0, return_inverse=True)
    place = np.asarray(place).reshape(-1)
    order = np.argsort(place, kind="stable")
    starts = np.flatnonzero(np.diff(place[order], prepend=-1))
    turn = np.arange(len(place)) - np.repeat(starts, np.diff(np.append(starts, len(place))))
    earlier = np.empty(len(place), dtype=np.int64)
    earlier[order] = turn
    return earlier


def true_neighbors(keypoints: np.ndarray, count: int) -> Neighborhoods:
    """Neighborhoods of the true keypoints: for each feature one feature at each of the `count` nearest other positions."""
    from scipy.spatial import KDTree

    places, first, place = np.unique(keypoints, axis=0, return_index=True, return_inverse=True)
    near = KDTree(places).query(places, k=range(2, min(count + 1, len(places)) + 1))[1]
    rows = first[near].reshape(len(places), -1)[np.asarray(place).reshape(-1)]
    return Neighborhoods(rows=rows.astype(np.int64), weights=np.ones(rows.shape))


def _blind(case: _AttackedPhotograph, shares: Float64[np.ndarray, "lines"]) -> Estimates:
    """Blind guesses: the point at the given share of each line's segment in the image."""
    where = segments(case.lines(), case.features.camera)
    points = pixels(where.at(where.between(shares)), case.features.camera)
    none = np.zeros(len(points), dtype=bool)
    return Estimates(points=points, confidence=np.zeros(len(points)), certified=none)


def _bound(case: _AttackedPhotograph) -> Estimates:
    """Estimates of the attack by neighbors that is given the true neighbors, a bound for all that must find them."""
    known = true_neighbors(case.features.keypoints, NEIGHBORS)
    options = LineNeighborOptions(radius_px=40.0)
    return neighbor_positions(case.lines(), known, camera=case.features.camera, options=options)


def _twins(case: _AttackedPhotograph, lines: Lines) -> Estimates:
    """Estimates of the attack by neighbors that finds these by their descriptors."""
    stored = case.features.descriptors.astype(np.float32)
    histograms = stored**2 if case.features.space.normalization == "L1_ROOT" else stored
    return neighbor_positions(lines, twins(histograms), camera=case.features.camera)


def _by_rank(case: _AttackedPhotograph, order: np.ndarray) -> Estimates:
    """Estimates by the rank of each line, where lines are released in this order of the features."""
    estimates = positions_by_rank(case.lines().take(order), camera=case.features.camera)
    return estimates.take(np.argsort(order))


_RUNS: Mapping[str, Callable[[_AttackedPhotograph], Estimates]] = {
    "chance": lambda case: _blind(case, case.random().random(len(case.features))),
    "midpoint": lambda case: _blind(case, np.full(len(case.features), 0.5)),
    "density": lambda case: density_positions(case.lines(), camera=case.features.camera),
    "density peak": lambda case: density_positions(case.lines(), camera=case.features.camera, options=PAPER_DENSITY),
    "true neighbors": _bound,
    "twins": lambda case: _twins(case, case.lines()),
    "twins, own lines": lambda case: _twins(case, case.own_lines()),
    "order": lambda case: _by_rank(case, case.random().permutation(len(case.features))),
    "order, sorted": lambda case: _by_rank(case, np.argsort(case.features.keypoints[:, 0], kind="stable")),
    "repeat": lambda case: repeat_positions([case.lines(), case.lines()], camera=case.features.camera),
    "repeat, fresh": lambda case: repeat_positions([case.lines("one"), case.lines("two")], camera=case.features.camera),
}
assert tuple(_RUNS) == tuple(ATTACKS)
