"""Attacks on hidden positions, on photographs: how far recovered keypoints are from the true ones, beside blind guesses.

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
from veil.attacks.positions.line_neighbors import Neighborhoods, NeighborOptions, neighbor_positions
from veil.attacks.positions.order import positions_by_rank
from veil.attacks.positions.segments import pixels, segments
from veil.errors import InputError, RangeError
from veil.features import Features
from veil.forms import Lines
from veil.mechanisms.lines import LineOptions, along_gravity, lift_to_lines, normalized_keypoints
from veil.randomness import seeded

LEVEL = (0.0, 1.0, 0.0)
SHARES = (0.0, 0.5, 1.0)
WITHIN_PX = (1.0, 5.0, 10.0, 20.0)
NEIGHBORS = 10
# The estimator of the paper, beside the one with the least error on other photographs.
PAPER_DENSITY = DensityOptions(estimator="crossings", decide="peak", bandwidth_share=0.03)

# name -> what it is, in the order of tables and figures; blind guesses first.
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
    """One attack on the lines of one photograph: estimate minus truth (pixels), NaN where the attack made no decision."""

    image: str
    aligned_share: float
    attack: str
    offsets: Float64[np.ndarray, "_ 2"]
    certified: Bool[np.ndarray, "_"]

    @property
    def errors_px(self) -> Float64[np.ndarray, "_"]:
        """Distances to the truth."""
        return np.linalg.norm(self.offsets, axis=1)


@dataclass(frozen=True, kw_only=True)
class PositionRow:
    """One attack at one share over all photographs. Medians and the mean are of the decided; `within` counts shares of *all*
    features, by pixels. `wrongly_certified` counts certified positions that are off by more than a pixel."""

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
    """Every attack of `attacks` on one photograph, at every share of lines along gravity (None: a level camera).

    Twins need SIFT descriptors of 128 numbers and are left out for others. Raises InputError for fewer than `NEIGHBORS` + 2
    features or unknown attacks, RangeError for shares outside [0, 1].
    """
    unknown = sorted(set(attacks) - set(ATTACKS))
    if unknown:
        raise InputError(f"there is no attack on positions called {', '.join(unknown)}; there are {', '.join(ATTACKS)}")
    if len(features) < NEIGHBORS + 2:
        raise InputError(f"the study of positions needs {NEIGHBORS + 2} features a photograph, got {len(features)}")
    if not all(0 <= share <= 1 for share in shares):
        raise RangeError(f"shares of lines along gravity must lie between 0 and 1, got {tuple(shares)!r}")
    down = np.array(LEVEL) if gravity is None else gravity
    found = []
    for share in shares:
        case = _Case(name=name, features=features, gravity=down, share=share, seed=seed)
        for attack in attacks:
            if "twins" in attack and features.space.dim != 128:
                continue
            estimates = case.attacked(attack)
            offsets = estimates.points - features.keypoints.astype(np.float64)
            found.append(
                PositionTrial(image=name, aligned_share=share, attack=attack, offsets=offsets, certified=estimates.certified)
            )
    return found


def position_rows(trials: Sequence[PositionTrial]) -> list[PositionRow]:
    """One row a share and attack, in the order of the trials."""
    return [_row(group) for group in _groups(trials).values()]


def position_histograms(
    trials: Sequence[PositionTrial], edges_px: Float64[np.ndarray, "edges"]
) -> dict[tuple[float, str], Float64[np.ndarray, "bins"]]:
    """Share of all features of (aligned share, attack) whose error lies in each bin; undecided ones are in none.

    Errors below the first edge count in the first bin, those above the last in the last.
    """
    if not (len(edges_px) > 1 and (np.diff(edges_px) > 0).all()):
        raise RangeError("the edges of a histogram must be two or more, in ascending order")
    found = {}
    for key, group in _groups(trials).items():
        errors = np.concatenate([trial.errors_px for trial in group])
        clipped = np.clip(errors[np.isfinite(errors)], edges_px[0], edges_px[-1])
        found[key] = np.histogram(clipped, edges_px)[0] / max(len(errors), 1)
    return found


def _groups(trials: Sequence[PositionTrial]) -> dict[tuple[float, str], list[PositionTrial]]:
    groups: dict[tuple[float, str], list[PositionTrial]] = {}
    for trial in trials:
        groups.setdefault((trial.aligned_share, trial.attack), []).append(trial)
    return groups


def _row(group: Sequence[PositionTrial]) -> PositionRow:
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
class _Case:
    """One photograph at one share."""

    name: str
    features: Features
    gravity: Float64[np.ndarray, "_"]
    share: float
    seed: int

    def attacked(self, attack: str) -> Estimates:
        """Estimates in the order of the features, whatever order the attack saw."""
        return _RUNS[attack](self)

    def lines(self, draw: str = "once") -> Lines:
        """As veil draws them: one line a position; at share 1, which veil refuses, all along gravity."""
        features = self.features
        case = f"positions|{self.seed}|{self.name}|{self.share!r}|{draw}"
        if self.share < 1:
            options = LineOptions(aligned_share=self.share)
            return lift_to_lines(features, gravity=self.gravity, randomness=seeded(case), options=options)
        xy = normalized_keypoints(features)
        normals = along_gravity(xy, self.gravity)
        if not np.isfinite(normals).all():
            raise InputError("a keypoint lies in the vanishing point of gravity, where no line has a direction")
        offsets = -(normals * xy).sum(axis=1, keepdims=True)
        return Lines(
            coefficients=np.hstack([normals, offsets]).astype(np.float32),
            aligned=np.ones(len(xy), dtype=bool),
            gravity=self.gravity,
            releasable=False,
        )

    def own_lines(self) -> Lines:
        """A line of its own for every feature, also where several are at one position."""
        turn = occurrence(self.features.keypoints)
        layers = [self.lines(f"own {k}") for k in range(int(turn.max()) + 1)]
        coefficients = np.stack([layer.coefficients for layer in layers])[turn, np.arange(len(turn))]
        aligned = np.stack([layer.aligned for layer in layers])[turn, np.arange(len(turn))]
        return Lines(coefficients=coefficients, aligned=aligned, gravity=layers[0].gravity, releasable=False)

    def random(self) -> np.random.Generator:
        return np.random.default_rng([self.seed, *self.name.encode()])


def occurrence(keypoints: np.ndarray) -> Int64[np.ndarray, "features"]:
    """How many earlier features share the position of each."""
    _, place = np.unique(keypoints, axis=0, return_inverse=True)
    place = np.asarray(place).reshape(-1)
    order = np.argsort(place, kind="stable")
    starts = np.flatnonzero(np.diff(place[order], prepend=-1))
    turn = np.arange(len(place)) - np.repeat(starts, np.diff(np.append(starts, len(place))))
    found = np.empty(len(place), dtype=np.int64)
    found[order] = turn
    return found


def true_neighbors(keypoints: np.ndarray, count: int) -> Neighborhoods:
    """One feature at each of the `count` positions that are nearest to each feature's own."""
    from scipy.spatial import KDTree

    places, first, place = np.unique(keypoints, axis=0, return_index=True, return_inverse=True)
    near = KDTree(places).query(places, k=range(2, min(count + 1, len(places)) + 1))[1]
    rows = first[near].reshape(len(places), -1)[np.asarray(place).reshape(-1)]
    return Neighborhoods(rows=rows.astype(np.int64), weights=np.ones(rows.shape))


def _blind(case: _Case, shares: Float64[np.ndarray, "lines"]) -> Estimates:
    where = segments(case.lines(), case.features.camera)
    points = pixels(where.at(where.between(shares)), case.features.camera)
    none = np.zeros(len(points), dtype=bool)
    return Estimates(points=points, confidence=np.zeros(len(points)), certified=none)


def _bound(case: _Case) -> Estimates:
    known = true_neighbors(case.features.keypoints, NEIGHBORS)
    options = NeighborOptions(radius_px=40.0)
    return neighbor_positions(case.lines(), known, camera=case.features.camera, options=options)


def _twins(case: _Case, lines: Lines) -> Estimates:
    stored = case.features.descriptors.astype(np.float32)
    histograms = stored**2 if case.features.space.normalization == "L1_ROOT" else stored
    return neighbor_positions(lines, twins(histograms), camera=case.features.camera)


def _by_rank(case: _Case, order: np.ndarray) -> Estimates:
    found = positions_by_rank(case.lines().take(order), camera=case.features.camera)
    return found.take(np.argsort(order))


_RUNS: Mapping[str, Callable[[_Case], Estimates]] = {
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
