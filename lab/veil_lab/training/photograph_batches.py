"""Batches of candidates of whole photographs, on one device: what an attacker sees of simulated releases, and the answers.

Theory: learned_attacks.md#whole-photograph.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float16, Float32, Float64, Int64

from veil.attacks.distribution.context import BUMPS, FARTHEST, NEIGHBORS, mean_spacing, neighbor_rows
from veil_lab.training.simulated_releases import SimulatedRelease, Tensor, torch

# Features of a photograph in a batch at most: those attacked with their neighbors, or a window.
MOST_AT_ONCE = 336
# Numbers of features that are attacked together, and those of a window.
ATTACKED, WINDOW = (40, 80), (60, 320)
# Shares of photographs of which attacked features come with their neighbors, come alone, or form a window; and of each those
# whose positions are hidden.
KINDS, HIDDEN = (0.45, 0.3, 0.25), (0.1, 0.75, 0.25)
# Padded to a multiple of this with the row of registers, as fused attention likes it.
MULTIPLE = 8


@dataclass(frozen=True, kw_only=True, eq=False)
class StoredView:
    """Features of a release that leave together: rows of the store, places of neighbors, positions and mean spacing (px)."""

    rows: Int64[np.ndarray, "features"]
    neighbors: Int64[np.ndarray, "features neighbors"]
    keypoints: Float64[np.ndarray, "features 2"]
    spacing: float

    @staticmethod
    def of(rows: Int64[np.ndarray, "features"], keypoints: Float64[np.ndarray, "features 2"]) -> StoredView:
        """The view of `rows` with these positions (px)."""
        near = neighbor_rows(keypoints, NEIGHBORS)
        return StoredView(rows=rows, neighbors=near, keypoints=keypoints, spacing=mean_spacing(keypoints))


@dataclass(frozen=True, kw_only=True, eq=False)
class CandidateStore:
    """Candidates of all features of many releases.

    - `points`, `log_ratios`: modes and the log ratios there, zero and -inf where there are fewer; `gaps`: their distances to
      the truth.
    - `truth`, `basis`: descriptors, and orthonormal directions of their subspaces; `keypoints`: positions in pixels.
    - `photographs`: the views of each release.
    """

    points: Float16[Tensor, "features modes dim"]
    log_ratios: Float32[Tensor, "features modes"]
    gaps: Float32[Tensor, "features modes"]
    truth: Float32[Tensor, "features dim"]
    basis: Float16[Tensor, "features m dim"]
    keypoints: Float32[Tensor, "features 2"]
    photographs: tuple[tuple[StoredView, ...], ...]

    @staticmethod
    def of(releases: Sequence[SimulatedRelease]) -> CandidateStore:
        """The store of these releases, of which there is at least one, on their device."""
        photographs, first = [], 0
        for release in releases:
            places = release.keypoints.cpu().numpy().astype(np.float64)
            members = [view.members.cpu().numpy() for view in release.views]
            photographs.append(tuple(StoredView.of(first + rows, places[rows]) for rows in members))
            first += len(places)
        points, ratios, truth, basis, keypoints = (
            torch.cat([getattr(release, name) for release in releases])
            for name in ("points", "log_ratios", "truth", "basis", "keypoints")
        )
        gaps = torch.cat([(release.points - release.truth[:, None]).norm(dim=2) for release in releases])
        return CandidateStore(
            points=points.half(),
            log_ratios=ratios,
            gaps=torch.where(torch.isfinite(ratios), gaps, math.inf),
            truth=truth,
            basis=basis.half(),
            keypoints=keypoints,
            photographs=tuple(photographs),
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class AttackedFeatures:
    """Rows of a store that are attacked together, the first `judged` of which count; `spacing` None hides positions."""

    rows: Int64[np.ndarray, "features"]
    judged: int
    spacing: float | None


@dataclass(frozen=True, kw_only=True, eq=False)
class PhotographBatch:
    """Features of some photographs, padded to one number of features.

    - `inputs`: modes times sqrt(dim); `log_ratios`: those below the highest mode; `known`: which of the modes there are.
    - `keypoints` in units of pixels, `spacing` their mean spacing; `placed`: whether positions are seen.
    - `gaps`, `truth`, `basis`: the answers, as in a store; `judged`: features that count.
    """

    inputs: Float32[Tensor, "photographs features modes dim"]
    log_ratios: Float32[Tensor, "photographs features modes"]
    known: Bool[Tensor, "photographs features modes"]
    keypoints: Float32[Tensor, "photographs features 2"]
    spacing: Float32[Tensor, "photographs"]
    placed: Bool[Tensor, "photographs"]
    gaps: Float32[Tensor, "photographs features modes"]
    truth: Float32[Tensor, "photographs features dim"]
    basis: Float32[Tensor, "photographs features m dim"]
    judged: Bool[Tensor, "photographs features"]

    @property
    def real(self) -> Bool[Tensor, "photographs features"]:
        """Features that are no padding."""
        return self.known.any(2)


def attacked_features(
    view: StoredView, count: int, *, hidden: bool, alone: bool, random: np.random.Generator
) -> AttackedFeatures:
    """At most `count` features of a view as an audit attacks them: with their neighbors, or `alone`."""
    first = random.permutation(len(view.rows))[:count]
    around = np.empty(0, dtype=np.int64) if alone else np.setdiff1d(view.neighbors[first], first)
    around = random.permutation(around)[: max(MOST_AT_ONCE - len(first), 0)]
    rows = view.rows[np.concatenate([first, around])]
    return AttackedFeatures(rows=rows, judged=len(first), spacing=None if hidden else view.spacing)


def drawn_features(store: CandidateStore, kind: int, number: int, random: np.random.Generator) -> list[AttackedFeatures]:
    """Features of `number` photographs, chosen in one of the `KINDS`: with neighbors, alone, or as a window."""
    chosen = []
    for place in random.integers(len(store.photographs), size=number):
        views = store.photographs[int(place)]
        view = views[int(random.integers(len(views)))]
        hidden = bool(random.random() < HIDDEN[kind])
        if kind == 2:
            count = int(random.integers(*WINDOW))
            middle = view.keypoints[int(random.integers(len(view.rows)))]
            near = np.argsort(np.linalg.norm(view.keypoints - middle, axis=1), kind="stable")[:count]
            spacing = None if hidden else view.spacing
            chosen.append(AttackedFeatures(rows=view.rows[near], judged=len(near), spacing=spacing))
        else:
            count = int(random.integers(*ATTACKED))
            chosen.append(attacked_features(view, count, hidden=hidden, alone=kind == 1, random=random))
    return chosen


def batch_of(store: CandidateStore, chosen: Sequence[AttackedFeatures], *, judge_all: bool = True) -> PhotographBatch:
    """The batch of these features; with `judge_all` those around the attacked ones count, too."""
    device = store.points.device
    most = max(len(item.rows) for item in chosen)
    width = -(-(most + 1) // MULTIPLE) * MULTIPLE - 1
    rows, judged = np.zeros((len(chosen), width), dtype=np.int64), np.zeros((len(chosen), width), dtype=bool)
    real = np.zeros_like(judged)
    for place, item in enumerate(chosen):
        rows[place, : len(item.rows)], real[place, : len(item.rows)] = item.rows, True
        judged[place, : len(item.rows) if judge_all else item.judged] = True
    at, is_real = torch.from_numpy(rows).to(device), torch.from_numpy(real).to(device)
    ratios = store.log_ratios[at]
    known = torch.isfinite(ratios) & is_real[..., None]
    points = store.points[at].float()
    return PhotographBatch(
        inputs=torch.where(known[..., None], points * math.sqrt(points.shape[3]), 0.0),
        log_ratios=torch.where(known, ratios - ratios[..., :1], 0.0),
        known=known,
        keypoints=store.keypoints[at],
        spacing=torch.tensor([item.spacing or 1.0 for item in chosen], device=device),
        placed=torch.tensor([item.spacing is not None for item in chosen], device=device),
        gaps=torch.where(known, store.gaps[at], math.inf),
        truth=store.truth[at],
        basis=store.basis[at].float(),
        judged=torch.from_numpy(judged).to(device),
    )


def read_distances(
    keypoints: Float32[Tensor, "photographs features 2"], spacing: Float32[Tensor, "photographs"]
) -> Float32[Tensor, "photographs features features inputs"]:
    """What a network reads of the distances of all keypoints of photographs, as `distance_inputs` does."""
    across, down = (keypoints[:, :, None, axis] - keypoints[:, None, :, axis] for axis in (0, 1))
    gaps = (across.square() + down.square()).sqrt()
    units = (gaps / spacing[:, None, None]).clamp(max=FARTHEST)
    near = [torch.exp(-((units - center) ** 2) / (2 * width**2)) for center, width in BUMPS]
    return torch.stack([units, torch.log(units + 0.05), torch.log(gaps + 1) / 3, *near], 3)
