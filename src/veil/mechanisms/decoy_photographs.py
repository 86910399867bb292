"""Decoys from whole photographs: all decoys of an image are the features of a few others, each placed as a whole.

Decoys that are drawn one by one contradict those of neighboring keypoints, and what agrees is the truth
(learned_attacks.md#context). Here each of m other photographs gives every keypoint one decoy, by place and scale, so that a
message holds m + 1 photographs that each agree with themselves.

Theory: release.md#decoys-from-whole-photographs.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Float64, Int64, UInt64

from veil.codebooks.codebook import Provenance
from veil.codebooks.decoys import DecoyPool
from veil.errors import InputError, Remedy, SpaceError
from veil.features import Features
from veil.mechanisms.selection import Selection, selected_rows
from veil.one_line import one_line
from veil.progress import Progress
from veil.randomness import Randomness, fresh
from veil.space import differences

# Number of features of a decoy photograph for each that leaves, those of largest scale. More of them would be displaced less,
# and of smaller scale than those that leave, which tells more.
SPARE = 1.2
# A photograph of a side this many times that of the image, or less, is of like size.
LIKE_SIZE = 1.6
# Number of photographs that are drawn for an image, of which those that fit best are taken.
TRIED = 24
# Number of decoy photographs of an image by default: of 2, 4 and 8 the fewest that leave attacks below what was aimed at
# (lab/results/defenses.md#decoys-from-whole-photographs).
PHOTOGRAPHS_M = 8
# Features of a photograph that are compared: those of largest scale, spread over the picture.
COMPARED = Selection(features=150, min_distance_px=10.0)
# Largest ratio of the distances of the nearest and the next descriptor (Lowe 2004), and the least share and number of features
# that match.
MOST_RATIO, LEAST_SHARE, LEAST_MATCHES = 0.8, 0.1, 8
# Cost of an octave of scale, in squares of the mean spacing of keypoints.
OCTAVE = 0.3


@dataclass(frozen=True, kw_only=True, eq=False)
class DecoyPhotographs:
    """Photographs of other places that give decoys as wholes; a device uses each for one release, ever.

    `photographs` are their raw features, of the same kind as those of the images that are released, and extracted as these are.
    They are of other places, and no two of one place: what two uploads have in common joins them. Raises InputError for one
    that is there twice.
    """

    photographs: tuple[Features, ...]

    __repr__ = one_line

    def __post_init__(self) -> None:
        if len({item.image_digest for item in self.photographs}) < len(self.photographs):
            raise InputError("a decoy photograph is there twice; each serves one release, so leave out the second")

    def __len__(self) -> int:
        return len(self.photographs)

    def named(self, digests: Iterable[bytes]) -> DecoyPhotographs:
        """The photographs with these image digests, in their order. Raises InputError if any is not there."""
        known = {item.image_digest: item for item in self.photographs}
        wanted = list(digests)
        missing = sum(digest not in known for digest in wanted)
        if missing:
            raise InputError(
                f"the image left before with the decoys of {len(wanted)} photographs, of which {missing} are not given; "
                "give the same ones again, as only they repeat its release"
            )
        return DecoyPhotographs(photographs=tuple(known[digest] for digest in wanted))

    def without(self, digests: Collection[bytes]) -> DecoyPhotographs:
        """The photographs with other image digests than these."""
        return DecoyPhotographs(photographs=tuple(item for item in self.photographs if item.image_digest not in digests))


@dataclass(frozen=True, kw_only=True, eq=False)
class AssignedRule:
    """Rule of decoys that gives each feature the words that were assigned to it, whatever is drawn.

    `words`, int64 (features, decoys): words of each raw feature, -1 for features that were assigned none.
    """

    words: Int64[np.ndarray, "_ _"]

    def __call__(
        self,
        rows: Int64[np.ndarray, "features"],
        draws: UInt64[np.ndarray, "features decoys"],
        available: Int64[np.ndarray, "words"],
    ) -> Int64[np.ndarray, "features decoys"]:
        """The words of these features. Raises InputError for one without, or for another number of decoys."""
        chosen = self.words[rows]
        if chosen.shape != draws.shape or (chosen < 0).any():
            raise InputError(f"decoys were assigned to other features, or not {draws.shape[1]} to each")
        return chosen

    def identity(self, rows: Int64[np.ndarray, "features"]) -> list[bytes]:
        """The words themselves: the choice depends on nothing else."""
        return [b"assigned|" + self.words[row].astype("<i8").tobytes() for row in rows.tolist()]


@dataclass(frozen=True, kw_only=True, eq=False)
class PlacedPhotographs:
    """Decoys of one image: a pool of the features of `photographs` (image digests), and which of them each feature gets.

    `displacement` is the mean distance from a keypoint to the place of its decoy, in units of the mean spacing of keypoints.
    """

    pool: DecoyPool
    rule: AssignedRule
    photographs: tuple[bytes, ...]
    displacement: float


def placed_photographs(
    features: Features,
    sent: Int64[np.ndarray, "sent"],
    photographs: Collection[Features],
    *,
    count: int,
    min_distance_px: float,
    randomness: Randomness,
) -> PlacedPhotographs:
    """The `count` photographs that fit the features `sent` of an image best, assigned to them one to one.

    Of the photographs that may serve, `TRIED` are drawn for the image. Their features are chosen as those that leave are: by
    scale, and at least `min_distance_px` apart. Each photograph is stretched to the image's size, turned by a quarter if one of
    them lies and the other stands, and its features are assigned to those of the image at the least cost,

        |displacement|^2 / spacing^2 + 0.3 (difference of scales in octaves)^2 .

    Raises SpaceError for photographs of another kind of descriptor, InputError if fewer than `count` are of like size and have
    1.2 times the features that leave.
    """
    for item in photographs:
        if item.space != features.space or item.is_quantized != features.is_quantized:
            raise SpaceError(
                f"the image is [{features.space}] and a decoy photograph [{item.space}], which differ in "
                f"{' and '.join(differences(features.space, item.space)) or 'precision'}; extract both alike"
            )
    own = features.take(sent)
    size = _upright_size(features)
    fitting: list[Features] = []
    for item in _drawn(features, [item for item in photographs if _is_like(size, _upright_size(item))], randomness):
        largest = Selection(features=max(1, math.ceil(SPARE * len(own))), min_distance_px=min_distance_px)
        kept = item.take(selected_rows(item, largest, randomness))
        if len(kept) >= SPARE * len(own) and item.image_digest != features.image_digest:
            fitting.append(kept)
        if len(fitting) == TRIED:
            break
    if len(fitting) < count:
        raise _too_few(features, len(own), len(photographs), len(fitting), count, min_distance_px)
    spacing = math.sqrt(size[0] * size[1] / max(len(own), 1))
    near = [_mean_gap(_places(own, size), _places(item, size)) for item in fitting]
    best = [fitting[place] for place in np.argsort(near, kind="stable")[:count]]
    assigned = [_assigned(own, item, size, spacing) for item in best]
    words = np.full((len(features), count), -1, dtype=np.int64)
    words[sent] = len(own) * np.arange(count) + _first_equal(own.descriptors)[:, None]
    pool = DecoyPool(
        descriptor=features.space.descriptor,
        normalization=features.space.normalization,
        stored=np.concatenate([item.descriptors[rows] for item, (rows, _) in zip(best, assigned, strict=True)]),
        slices=1,
        pca=None,
        dither_steps=0.0,
        provenance=Provenance(
            source="decoy photographs",
            license="",
            image_count=count,
            descriptor_count=count * len(own),
            image_digests=tuple(item.image_digest[:8].hex() for item in best),
        ),
    )
    return PlacedPhotographs(
        pool=pool,
        rule=AssignedRule(words=words),
        photographs=tuple(item.image_digest for item in best),
        displacement=float(np.mean([gaps for _, gaps in assigned])) / spacing,
    )


def _drawn(features: Features, photographs: list[Features], randomness: Randomness) -> list[Features]:
    """The photographs in an order that is drawn for the image."""
    contexts = [b"decoy photograph|" + features.image_digest + item.image_digest for item in photographs]
    drawn = randomness.bits64(contexts, 1)[:, 0] if contexts else np.empty(0)
    return [photographs[place] for place in np.argsort(drawn, kind="stable")]


def _upright_size(features: Features) -> tuple[float, float]:
    """Longer and shorter side of the image, in pixels."""
    sides = features.camera.width_px, features.camera.height_px
    return float(max(sides)), float(min(sides))


def _is_like(size: tuple[float, float], other: tuple[float, float]) -> bool:
    return all(1 / LIKE_SIZE <= theirs / mine <= LIKE_SIZE for mine, theirs in zip(size, other, strict=True))


def _places(features: Features, size: tuple[float, float]) -> Float64[np.ndarray, "features 2"]:
    """Keypoints in the lying frame of `size` (pixels): stretched to it, and turned by a quarter where the image stands."""
    width, height = features.camera.width_px, features.camera.height_px
    places = features.keypoints.astype(np.float64) / (width, height)
    if width < height:
        places = np.stack([places[:, 1], 1 - places[:, 0]], axis=1)
    return places * size


def _mean_gap(own: Float64[np.ndarray, "features 2"], other: Float64[np.ndarray, "others 2"]) -> float:
    """Mean distance from a keypoint to the nearest one of another photograph."""
    from scipy.spatial import cKDTree

    return float(cKDTree(other).query(own)[0].mean())


def _assigned(
    own: Features, other: Features, size: tuple[float, float], spacing: float
) -> tuple[Int64[np.ndarray, "features"], Float64[np.ndarray, "features"]]:
    """The feature of another photograph that each feature gets, none twice, and its displacement in pixels."""
    from scipy.optimize import linear_sum_assignment
    from scipy.spatial.distance import cdist

    gaps = cdist(_places(own, size), _places(other, size))
    cost = (gaps / spacing) ** 2
    if own.scales is not None and other.scales is not None:
        enlarged = math.sqrt(math.prod(size) / math.prod(_upright_size(other)))
        octaves = np.log2(own.scales.astype(np.float64))[:, None] - np.log2(other.scales.astype(np.float64) * enlarged)
        cost += OCTAVE * octaves**2
    rows, columns = linear_sum_assignment(cost)
    return columns.astype(np.int64), gaps[rows, columns]


def _first_equal(descriptors: np.ndarray) -> Int64[np.ndarray, "rows"]:
    """The first row that equals each row: two lifts of one descriptor would meet in it (release.md#memoized-draws)."""
    _, first, which = np.unique(descriptors, axis=0, return_index=True, return_inverse=True)
    return first[which.ravel()].astype(np.int64)


def _too_few(features: Features, sent: int, given: int, fitting: int, count: int, min_distance_px: float) -> InputError:
    """The error for too few photographs that may serve, with what to bring."""
    width, height = features.camera.width_px, features.camera.height_px
    return InputError(
        f"the image of {width}x{height} px sends {sent} features and needs {count} decoy photographs that no release used, of "
        f"about its size, with {math.ceil(SPARE * sent)} features or more that lie {min_distance_px:g} px apart; of {given} "
        f"unused ones {fitting} are so. Bring photographs of other places from the same camera, {count} for each release",
        facts={"needed": count, "fitting": fitting, "unused": given, "features": math.ceil(SPARE * sent)},
        remedy=Remedy("lower", "Selection.features"),
    )


def of_one_place(photographs: Sequence[Features], *, progress: Progress | None = None) -> list[tuple[int, int]]:
    """Pairs of photographs that show one place, by their indices; views from far apart may pass for two places.

    Time grows with the square of their number; `progress` is called with the number that are compared with all, and of all.
    """
    kept, pairs = [_compared(item) for item in photographs], []
    for one, own in enumerate(kept):
        pairs += [(one, one + 1 + other) for other, theirs in enumerate(kept[one + 1 :]) if _alike(own, theirs)]
        if progress is not None:
            progress(one + 1, len(kept))
    return pairs


def _compared(features: Features) -> Float32[np.ndarray, "compared dim"]:
    """Unit descriptors of the features that are compared."""
    chosen = features.take(selected_rows(features, COMPARED, fresh())).descriptors.astype(np.float32)
    length: np.ndarray = np.linalg.norm(chosen, axis=1, keepdims=True)
    return chosen / np.maximum(length, 1e-12)


def _alike(own: Float32[np.ndarray, "own dim"], theirs: Float32[np.ndarray, "theirs dim"]) -> bool:
    """Whether enough descriptors are each other's nearest, and much nearer than the next."""
    least = max(LEAST_MATCHES, math.ceil(LEAST_SHARE * min(len(own), len(theirs))))
    if min(len(own), len(theirs)) < least:
        return False
    cosines = own @ theirs.T
    nearest = cosines.argmax(axis=1)
    mutual = cosines.argmax(axis=0)[nearest] == np.arange(len(own))
    best = np.partition(cosines, -2, axis=1)[:, -2:]
    near, next_near = 2 - 2 * best.max(axis=1), 2 - 2 * best.min(axis=1)  # squared distances
    return int((mutual & (near < MOST_RATIO**2 * next_near)).sum()) >= least
