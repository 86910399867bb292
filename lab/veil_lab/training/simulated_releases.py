"""Releases that an attacker makes of its own photographs as `veil privatize` does, and their modes, in torch.

Theory: learned_attacks.md#context.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Float32, Float64, Int64

from veil.attacks.distribution.context import NEIGHBORS, distance_inputs, mean_spacing, neighbor_rows
from veil.attacks.distribution.density_network import DensityNetwork
from veil.attacks.distribution.modes import ModeOptions
from veil.audit.ground_truth import in_space
from veil.codebooks.codebook import Codebook
from veil.codebooks.mirror import SIFT_MIRRORED
from veil.errors import InputError
from veil.features import Features, unit_length
from veil.forms import canonical
from veil.mechanisms.profile import HARDENED_M
from veil.mechanisms.selection import Selection, selected_rows
from veil.progress import Progress, ignore_progress
from veil.randomness import seeded
from veil_lab.training.context_options import LEAST_FEATURES, ContextTraining, Device

try:
    import torch
    from torch import Tensor, nn  # noqa: F401
    from torch.nn import functional
except ImportError as error:
    raise InputError(f"the attack `context` is trained with torch ({error}); install veil-lab[training]") from None

# Features of a release at most, as many as a photograph has 10 px apart.
MOST_FEATURES = 700
# A third each of the photographs is released, gives decoys, and gives the database in which the search begins.
GROUPS = 3
DATABASE = 25_000
# Share of the releases that hold all features of a part of a photograph, of which many lie close.
EVERYTHING_SHARE = 0.12
# Shares of the features, those of the largest scale, that leave in smaller releases of the same photograph.
VIEWS = (1.0, 0.5, 0.25)
# Subspaces that are searched at a time.
AT_ONCE = {"cpu": 64, "cuda": 2048}
# Entries of SIFT (4 rows x 4 columns x 8 directions) in the order in which a mirrored photograph has them.
MIRROR = SIFT_MIRRORED


@dataclass(frozen=True, kw_only=True, eq=False)
class ReleaseView:
    """The `members` of a release that leave together, their neighbors' places among them, and what is read of distances."""

    members: Int64[Tensor, "features"]
    neighbors: Int64[Tensor, "features neighbors"]
    distances: Float32[Tensor, "features neighbors inputs"]


@dataclass(frozen=True, kw_only=True, eq=False)
class SimulatedRelease:
    """Modes of a release of the attacker's, and what it knows of it.

    - `points`, `log_ratios`: modes and the log ratios there, the highest first; zero and -inf where there are fewer.
    - `truth`: the descriptors in the space of the release; `basis`: orthonormal directions of their subspaces.
    - `keypoints`: their positions in pixels.
    - `views`: releases of all of these features, and of fewer.
    """

    points: Float32[Tensor, "features modes dim"]
    log_ratios: Float32[Tensor, "features modes"]
    truth: Float32[Tensor, "features dim"]
    basis: Float32[Tensor, "features m dim"]
    keypoints: Float32[Tensor, "features 2"]
    views: tuple[ReleaseView, ...]


def torch_device(wanted: Device) -> str:
    """Name of the device to train on. Raises InputError for "cuda" where torch has no graphics processor."""
    if wanted == "cuda" and not torch.cuda.is_available():
        raise InputError("torch sees no GPU; train with device cpu")
    return ("cuda" if torch.cuda.is_available() else "cpu") if wanted == "auto" else wanted


def require_photographs(photographs: Sequence[Features]) -> None:
    """Raise InputError for too few different photographs: decoys and database are of others than the released one."""
    count = len({item.image_digest for item in photographs if len(item) >= LEAST_FEATURES})
    if count < GROUPS:
        each = f"{GROUPS} photographs of at least {LEAST_FEATURES} features each"
        raise InputError(f"context is learned from {each}, got {count}; give more photographs")


def simulated_releases(
    photographs: Sequence[Features],
    book: Codebook,
    density: DensityNetwork,
    *,
    options: ContextTraining,
    search: ModeOptions | None = None,
    progress: Progress = ignore_progress,
) -> list[SimulatedRelease]:
    """At most `options.releases` releases of `photographs` with their modes, on the device that the options name.

    Each holds features of one photograph, and decoys of a third of the others. The search begins in descriptors of another
    third. SIFT is mirrored in every second round through the photographs. Photographs with fewer than 12 features are left
    out. Raises InputError if fewer than three different ones remain, or none has enough features that lie apart.
    """
    require_photographs(photographs)
    device, search = torch_device(options.device), search or ModeOptions()
    large = [item for item in photographs if len(item) >= LEAST_FEATURES]
    maker = _Maker(large, book, np.random.default_rng(options.seed))
    network, bases = TorchDensity.of(density, device), [torch.from_numpy(base).to(device) for base in maker.bases()]
    releases: list[SimulatedRelease] = []
    for item, group, is_mirrored in maker.rounds(options.releases):
        if rows := maker.leaving(item):
            kept = mirrored(item.take(rows[0])) if is_mirrored else item.take(rows[0])
            origin, basis = maker.lifted(kept, group, is_mirrored)
            flats = torch.from_numpy(origin).to(device), torch.from_numpy(basis).to(device)
            points, log_ratios = modes_of(*flats, network, bases[(group + 2) % GROUPS], search)
            releases.append(
                SimulatedRelease(
                    points=points,
                    log_ratios=log_ratios,
                    truth=torch.from_numpy(in_space(kept, maker.space, book).astype(np.float32)).to(device),
                    basis=flats[1],
                    keypoints=torch.from_numpy(kept.keypoints.astype(np.float32)).to(device),
                    views=tuple(_view(kept, np.searchsorted(rows[0], part), device) for part in rows),
                )
            )
        progress(len(releases), options.releases)
    if not releases:
        raise InputError(f"no photograph has {LEAST_FEATURES} features that lie apart; give others")
    return releases


def mirrored(features: Features) -> Features:
    """SIFT of the mirrored photograph, from its histograms; other descriptors as they are."""
    if not _has_mirror(features):
        return features
    keypoints = features.keypoints.copy()
    keypoints[:, 0] = features.camera.width_px - keypoints[:, 0]
    return replace(features, keypoints=keypoints, descriptors=np.ascontiguousarray(features.descriptors[:, MIRROR]))


def _has_mirror(features: Features) -> bool:
    return features.space.descriptor == "sift" and features.space.dim == len(MIRROR)


class _Maker:
    """Releases of photographs before their modes are searched, as `random` draws them."""

    def __init__(self, photographs: Sequence[Features], book: Codebook, random: np.random.Generator) -> None:
        numbers = {digest: row for row, digest in enumerate(dict.fromkeys(item.image_digest for item in photographs))}
        self._groups = [[x for x in photographs if numbers[x.image_digest] % GROUPS == group] for group in range(GROUPS)]
        self._pools = [np.concatenate([item.descriptors for item in group]) for group in self._groups]
        self._book, self._random = book, random
        self.space = book.compression.hardened_space

    def bases(self) -> list[Float32[np.ndarray, "entries dim"]]:
        """For each group at most `DATABASE` of its descriptors, where searches in subspaces of another group begin."""
        vectors = []
        for pool in self._pools:
            rows = self._random.permutation(len(pool))[:DATABASE]
            vectors.append(self._compressed(pool[rows]).astype(np.float32))
        return vectors

    def rounds(self, count: int) -> Iterator[tuple[Features, int, bool]]:
        """`count` photographs, their groups and whether to mirror them, in rounds through all.

        Each round has an order of its own, and every second one is mirrored.
        """
        every = [(item, number) for number, group in enumerate(self._groups) for item in group]
        order = self._random.permutation(len(every))
        for number in range(count):
            turn, place = divmod(number, len(every))
            if turn and not place:
                order = self._random.permutation(len(every))
            yield *every[order[place]], turn % 2 == 1

    def leaving(self, features: Features) -> list[Int64[np.ndarray, "features"]]:
        """Rows that leave, in ascending order: those of all views, the largest first. Empty if they are too few."""
        if self._random.random() < EVERYTHING_SHARE:  # of the upper part, where neighbors stay neighbors
            return [np.sort(np.argsort(features.keypoints[:, 1], kind="stable")[:MOST_FEATURES])]
        randomness = seeded("simulated")
        rows = selected_rows(features, Selection(features=MOST_FEATURES), randomness)
        counts = [max(round(len(rows) * share), LEAST_FEATURES) for share in VIEWS]
        if len(rows) < LEAST_FEATURES:
            return []
        return [rows, *(selected_rows(features, Selection(features=count), randomness) for count in counts[1:])]

    def lifted(
        self, features: Features, group: int, is_mirrored: bool
    ) -> tuple[Float32[np.ndarray, "features dim"], Float32[np.ndarray, "features m dim"]]:
        """Origins and bases of subspaces through `features` of a photograph of `group`, in the precision of a message.

        Decoys of a mirrored photograph are mirrored, too, or they would tell which of the two it is.
        """
        pool = self._pools[(group + 1) % GROUPS]
        chosen = pool[self._different(len(pool), len(features))]
        if is_mirrored and _has_mirror(features):
            chosen = chosen[..., MIRROR]
        corners = self._compressed(np.concatenate([features.descriptors[:, None], chosen], axis=1))
        halves = [part.astype(np.float16) for part in canonical(corners[:, 0], corners[:, 1:] - corners[:, :1])]
        return halves[0].astype(np.float32), halves[1].astype(np.float32)

    def _different(self, bound: int, count: int) -> Int64[np.ndarray, "features decoys"]:
        """For each of `count` features as many different numbers below `bound` as it has decoys."""
        chosen = self._random.integers(bound, size=(count, HARDENED_M))
        while (repeated := (np.diff(np.sort(chosen, axis=1), axis=1) == 0).any(axis=1)).any():
            chosen[repeated] = self._random.integers(bound, size=(repeated.sum(), HARDENED_M))
        return chosen

    def _compressed(self, stored: np.ndarray) -> Float64[np.ndarray, "*batch dim"]:
        """Descriptors as the hardened profile prepares them: dithered where they have 8 bits, of unit length, compressed."""
        values = stored.astype(np.float64)
        if stored.dtype == np.uint8:
            values += self._book.compression.dither_steps * self._random.random(values.shape)
        return self._book.compression.require_pca().apply(unit_length(values))


def _view(features: Features, members: Int64[np.ndarray, "members"], device: str) -> ReleaseView:
    """What the attacker sees of the keypoints of those of `features` that leave."""
    keypoints = features.keypoints[members].astype(np.float64)
    neighbors = neighbor_rows(keypoints, NEIGHBORS)
    gaps = np.linalg.norm(keypoints[neighbors] - keypoints[:, None], axis=2)
    return ReleaseView(
        members=torch.from_numpy(members).to(device),
        neighbors=torch.from_numpy(neighbors).to(device),
        distances=torch.from_numpy(distance_inputs(gaps, mean_spacing(keypoints))).to(device),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class TorchDensity:
    """Weights (inputs x outputs) and biases of a density network on one device, read as `DensityNetwork` reads them."""

    weights: tuple[Float32[Tensor, "_ _"], ...]
    biases: tuple[Float32[Tensor, "_"], ...]

    @staticmethod
    def of(network: DensityNetwork, device: str) -> TorchDensity:
        """The network on `device`."""
        weights, biases = ([torch.tensor(item, device=device) for item in of] for of in (network.weights, network.biases))
        return TorchDensity(weights=tuple(weights), biases=tuple(biases))

    def gradient(
        self, points: Float32[Tensor, "points dim"]
    ) -> tuple[Float32[Tensor, "points"], Float32[Tensor, "points dim"]]:
        """The log ratio at each of `points`, and its derivative there."""
        scale = math.sqrt(points.shape[1])
        values = (points * scale) @ self.weights[0] + self.biases[0]
        slopes = []
        for weight, bias in zip(self.weights[1:], self.biases[1:], strict=True):
            share = torch.sigmoid(values)
            values = values * share
            slopes.append(share + values * (1 - share))
            values = values @ weight + bias
        error = torch.ones_like(values)
        for weight, slope in zip(self.weights[:0:-1], slopes[::-1], strict=True):
            error = (error @ weight.T) * slope
        return values[:, 0], (error @ self.weights[0].T) * scale

    def log_ratio(self, points: Float32[Tensor, "points dim"]) -> Float32[Tensor, "points"]:
        """Logarithm of the ratio of densities at each of `points`."""
        values = (points * math.sqrt(points.shape[1])) @ self.weights[0] + self.biases[0]
        for weight, bias in zip(self.weights[1:], self.biases[1:], strict=True):
            values = functional.silu(values) @ weight + bias
        return values[:, 0]


def modes_of(
    origin: Float32[Tensor, "features dim"],
    basis: Float32[Tensor, "features m dim"],
    density: TorchDensity,
    database: Float32[Tensor, "entries dim"],
    options: ModeOptions,
) -> tuple[Float32[Tensor, "features modes dim"], Float32[Tensor, "features modes"]]:
    """Modes of subspaces and the log ratios there, as `density_modes` has them but zero and -inf where there are fewer."""
    size, parts = AT_ONCE[origin.device.type], []
    with torch.no_grad():
        for start in range(0, len(origin), size):
            flats = origin[start : start + size], basis[start : start + size]
            reached, values = _ascended(*flats, _starts(*flats, density, database, options), density, options)
            kept = distinct_rows(reached, values, options.apart, options.modes)
            has, at = kept >= 0, kept.clamp(min=0)
            inside = _rows_of(reached, at)
            points = torch.where(has[..., None], flats[0][:, None] + inside @ flats[1], 0.0)
            parts.append((points, torch.where(has, values.gather(1, at), -math.inf)))
    return torch.cat([points for points, _ in parts]), torch.cat([ratios for _, ratios in parts])


def _starts(
    origin: Tensor, basis: Tensor, density: TorchDensity, database: Tensor, options: ModeOptions
) -> Float32[Tensor, "features starts m"]:
    """Coordinates in each subspace from which the ascents begin; a subspace with fewer different ones repeats its best."""
    inside = torch.einsum("fmn,en->fem", basis, database) - torch.einsum("fmn,fn->fm", basis, origin)[:, None]
    squares = database.square().sum(1) - 2 * origin @ database.T + origin.square().sum(1)[:, None]
    near = (squares - inside.square().sum(2)).topk(min(options.entries, len(database)), largest=False).indices
    inside = _rows_of(inside, near)
    values = density.log_ratio((origin[:, None] + inside @ basis).flatten(0, 1)).view(near.shape)
    chosen = distinct_rows(inside, values, options.spread, options.starts)
    count = (chosen >= 0).sum(1, keepdim=True)
    places = torch.arange(options.starts, device=chosen.device) % count
    return _rows_of(inside, chosen.gather(1, places))


def _ascended(
    origin: Tensor, basis: Tensor, inside: Tensor, density: TorchDensity, options: ModeOptions
) -> tuple[Float32[Tensor, "features starts m"], Float32[Tensor, "features starts"]]:
    """Coordinates of the highest points on each ascent, and the log ratios there."""
    best, highest = inside, torch.full(inside.shape[:2], -math.inf, device=inside.device)
    for length in np.geomspace(options.longest, options.shortest, options.steps):
        points = origin[:, None] + inside @ basis
        values, slope = density.gradient(points.flatten(0, 1))
        values = values.view(highest.shape)
        higher = values > highest
        best, highest = torch.where(higher[..., None], inside, best), torch.where(higher, values, highest)
        along = torch.einsum("fmn,fsn->fsm", basis, slope.view(points.shape))
        inside = inside + float(length) * along / along.norm(dim=2, keepdim=True).clamp(min=1e-12)
    return best, highest


def distinct_rows(
    inside: Float32[Tensor, "features points m"], values: Float32[Tensor, "features points"], apart: float, most: int
) -> Int64[Tensor, "features most"]:
    """Rows of at most `most` points of each feature by falling value, each at least `apart` from those before; then -1."""
    free = torch.ones_like(values, dtype=torch.bool)
    kept = []
    for _ in range(most):
        best, at = torch.where(free, values, -math.inf).max(1)
        kept.append(torch.where(best > -math.inf, at, -1))
        gaps = (inside - _rows_of(inside, at[:, None])).norm(dim=2)
        free = (free & (gaps >= apart)).scatter(1, at[:, None], False)
    return torch.stack(kept, 1)


def _rows_of(values: Float[Tensor, "features points m"], rows: Int64[Tensor, "features rows"]) -> Tensor:
    """`rows` of the points of each feature."""
    return values.gather(1, rows[:, :, None].expand(-1, -1, values.shape[2]))
