"""Training data of inversion: photographs varied and extracted anew, and a server's view of them. It stays on the device."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import count

import numpy as np
from jaxtyping import UInt8

from veil.codebooks.codebook import Codebook
from veil.engine import Engine
from veil.errors import InputError, RangeError
from veil.extraction.picture import Picture
from veil.extraction.sift import SiftOptions, extract_sift, sift_space
from veil.features import Features
from veil.geometry.camera import guessed
from veil.inversion.maps import KINDS, SIDE, Frame, Kind, SparseMap, points_map, subspaces_map, words_map
from veil.ldp.mechanism import SubsetMechanism
from veil.mechanisms.profile import Profile, Strategy
from veil.mechanisms.public import publish
from veil.mechanisms.subspaces import lift
from veil.mechanisms.words import to_words
from veil.randomness import seeded

# Range of a variation's shorter side, from which the window of 256 px is cut, and range of the factor by which the picture is
# larger in which features are looked for. A photograph of 400 px a side that is inverted whole has a factor of 1.6.
SHORT_SIDE_PX = (256, 340)
FINER = (1.0, 2.0)
MOST_ENLARGED = 1.3
# Half of the variations have the features of a picture twice as large: those of large photographs stand as close.
FIRST_OCTAVES = (0, -1)
# Half of the windows keep this share of their features, drawn anew each time: uploads are limited, and attacks are undecided.
THINNED = (0.4, 1.0)
BRIGHTNESS, GAMMA = (0.75, 1.25), (0.8, 1.25)
_MIRRORED = np.arange(128).reshape(4, 4, 8)[::-1][:, :, -np.arange(8) % 8].ravel()


@dataclass(frozen=True, kw_only=True, eq=False)
class Example:
    """A variation of a photograph, with a shorter side of at least 256 px, and features whose keypoints are in its pixels."""

    rgb: UInt8[np.ndarray, "_ _ 3"]
    features: Features


@dataclass(frozen=True, kw_only=True, eq=False)
class ServerView:
    """The view of a server on which a network is trained.

    - `kind`: "raw" descriptors, "subspaces" of the `paper` profile, or "words" of `codebook`.
    - `lifting`: the way in which subspaces are lifted.
    - `dims`: the m that are trained on, each between 1 and 64; empty for raw descriptors.
    - `codebook`: decoys of the subspaces, or dictionary of the words.
    - `epsilons`: of each feature, for words; those that are trained on.

    Raises InputError for an unknown kind or a missing codebook or m, RangeError for an m outside its range.
    """

    kind: Kind
    dims: tuple[int, ...] = ()
    codebook: Codebook | None = None
    epsilons: tuple[float, ...] = (math.inf,)
    lifting: Strategy = "sub-hybrid"

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InputError(f"kind must be one of {', '.join(KINDS)}, got {self.kind!r}")
        if self.kind != "raw" and (self.codebook is None or not self.dims or not self.epsilons):
            raise InputError(f"{self.kind} need a codebook, at least one m, and at least one epsilon if they are words")
        if not all(1 <= m <= 64 for m in self.dims):
            raise RangeError(f"m must lie between 1 and 64, got {self.dims}")

    def of(self, features: Features, frame: Frame, *, m: int, epsilon: float = math.inf, case: str) -> SparseMap:
        """The map of one image as the server sees it; `case` seeds the lifting or the words.

        Raw descriptors ignore `m` and `epsilon`, and subspaces ignore `epsilon`.
        """
        if self.kind == "raw":
            return points_map(frame, features.keypoints, publish(features).vectors)
        assert self.codebook is not None
        if self.kind == "subspaces":
            lifted = lift(
                features,
                profile=Profile.paper(m, self.lifting),
                compression=self.codebook.compression,
                decoys=self.codebook,
                randomness=seeded(case),
            )
            return subspaces_map(frame, features.keypoints, lifted.form)
        mechanism = SubsetMechanism(dictionary_size=len(self.codebook), epsilon=epsilon, m=m)
        worded = to_words(features, mechanism=mechanism, dictionary=self.codebook, randomness=seeded(case))
        return words_map(frame, features.keypoints, worded.form, self.codebook)


def varied(rgb: UInt8[np.ndarray, "height width 3"], random: np.random.Generator) -> Example:
    """A random variation of a photograph: in other light, of another size, with features extracted anew.

    Raises InputError if it has no features.
    """
    from PIL import Image

    brightness, gamma = random.uniform(*BRIGHTNESS), math.exp(random.uniform(*np.log(GAMMA)))
    levels = np.clip(255 * brightness * (np.arange(256) / 255) ** gamma + 0.5, 0, 255).astype(np.uint8)
    source = Image.fromarray(np.ascontiguousarray(levels[rgb]))
    short = random.uniform(*SHORT_SIDE_PX)
    finer = min(short * random.uniform(*FINER), MOST_ENLARGED * min(source.size))
    seen = _resized(source, max(finer, short))
    shown = _resized(source, short)
    options = SiftOptions(first_octave=int(random.choice(FIRST_OCTAVES)))
    features = extract_sift(Picture.of(np.asarray(seen), {}, None), options)
    scale = np.array([shown.width / seen.width, shown.height / seen.height], dtype=np.float32)
    camera = guessed(shown.width, shown.height)
    moved = replace(features, keypoints=features.keypoints * scale, camera=camera, scales=None, orientations=None, scores=None)
    return Example(rgb=np.asarray(shown), features=moved)


def _resized(source, short: float):  # type: ignore[no-untyped-def]
    """A Pillow image resized to the shorter side `short` in pixels, with no side below 256."""
    from PIL import Image

    factor = short / min(source.size)
    width, height = (max(SIDE, round(side * factor)) for side in source.size)
    return source.resize((width, height), Image.Resampling.LANCZOS)


def assembled(rgb: np.ndarray, keypoints: np.ndarray, descriptors: np.ndarray, digest: bytes) -> Example:
    """The example of its stored parts."""
    features = Features(
        keypoints=keypoints,
        descriptors=descriptors,
        space=sift_space("L2"),
        camera=guessed(rgb.shape[1], rgb.shape[0]),
        image_digest=digest,
    )
    return Example(rgb=rgb, features=features)


def windowed(example: Example, random: np.random.Generator) -> Example | None:
    """A random window of 256x256 px of an example with the features in it; None if there are none."""
    height, width = example.rgb.shape[:2]
    left, top = random.integers(width - SIDE + 1), random.integers(height - SIDE + 1)
    keypoints = example.features.keypoints - np.array([left, top], dtype=np.float32)
    inside = ((keypoints >= 0) & (keypoints < SIDE)).all(axis=1)
    if not inside.any():
        return None
    features = replace(
        example.features,
        keypoints=keypoints[inside],
        descriptors=example.features.descriptors[inside],
        camera=guessed(SIDE, SIDE),
    )
    return Example(rgb=example.rgb[top : top + SIDE, left : left + SIDE], features=features)


def thinned(example: Example, random: np.random.Generator) -> Example:
    """The example with some of its features, or with all of them in half of the cases."""
    count = len(example.features)
    share = random.uniform(*THINNED) if random.random() < 0.5 else 1.0
    rows = np.sort(random.permutation(count)[: max(1, round(share * count))])
    features = replace(
        example.features, keypoints=example.features.keypoints[rows], descriptors=example.features.descriptors[rows]
    )
    return replace(example, features=features)


def mirrored(example: Example) -> Example:
    """The example of the mirrored photograph, without extracting it anew.

    Relative to a keypoint's own orientation, what lay above its axis lies below it: of SIFT's 4 x 4 x 8 histograms the rows are
    reversed, and each angle changes its sign (docs/theory/inversion.md#the-map).
    """
    features, width = example.features, example.rgb.shape[1]
    keypoints = np.column_stack([width - features.keypoints[:, 0], features.keypoints[:, 1]]).astype(np.float32)
    descriptors = np.ascontiguousarray(features.descriptors[:, _MIRRORED])
    return Example(
        rgb=np.ascontiguousarray(example.rgb[:, ::-1]), features=replace(features, keypoints=keypoints, descriptors=descriptors)
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Supply:
    """The batches of a training, which depend on their number alone, so that a resumed run sees what an unbroken one would.

    `load(i)` returns example i of `count`; each epoch takes every example once. Raises RangeError for a batch of more pictures
    than there are examples.
    """

    load: Callable[[int], Example]
    count: int
    view: ServerView
    batch: int
    seed: int

    def __post_init__(self) -> None:
        if not 1 <= self.batch <= self.count:
            raise RangeError(
                f"a batch takes between 1 and all {self.count} examples, got {self.batch!r}; give more photographs"
            )

    def __call__(self, step: int) -> tuple[list[SparseMap], UInt8[np.ndarray, "batch 256 256 3"]]:
        """Batch number `step` (from 0): maps, all of the same m and epsilon, and their pictures."""
        random = np.random.default_rng([self.seed, 1, step])
        m = int(random.choice(self.view.dims)) if self.view.dims else 0
        epsilon = float(random.choice(self.view.epsilons)) if self.view.kind == "words" else math.inf
        maps, pictures = [], []
        for place, index in enumerate(self._examples(step)):
            window = None
            while window is None:
                window = windowed(self.load(index), random)
                index = int(random.integers(self.count))  # another photograph in place of a window without features
            window = thinned(mirrored(window) if random.random() < 0.5 else window, random)
            case = f"inversion {self.seed} {step} {place}"
            maps.append(self.view.of(window.features, Frame(width=SIDE, height=SIDE), m=m, epsilon=epsilon, case=case))
            pictures.append(window.rgb)
        return maps, np.stack(pictures)

    def _examples(self, step: int) -> Sequence[int]:
        """Numbers of the examples of a batch, from shuffled epochs; an incomplete batch at an epoch's end is left out."""
        epoch, place = divmod(step, self.count // self.batch)
        order = np.random.default_rng([self.seed, 2, epoch]).permutation(self.count)
        return order[place * self.batch : (place + 1) * self.batch].tolist()


class Ahead:
    """The batches of a supply, made by the workers of an engine before they are asked for.

    Batches are asked for in ascending order, from `first` on, and are those of the supply: each depends on its number alone.
    """

    def __init__(self, supply: Supply, engine: Engine, *, first: int) -> None:
        """Begin with batch number `first`. The supply must be picklable; it is sent once to each worker."""
        self._found = engine.map(_batch, count(first), shared=[engine.scatter(supply)])
        self._first, self._early = first, dict[int, tuple[list[SparseMap], np.ndarray]]()

    def __call__(self, step: int) -> tuple[list[SparseMap], UInt8[np.ndarray, "batch 256 256 3"]]:
        """Batch number `step`."""
        while step not in self._early:
            place, batch = next(self._found)
            self._early[self._first + place] = batch
        return self._early.pop(step)


def _batch(step: int, supply: Supply) -> tuple[list[SparseMap], UInt8[np.ndarray, "batch 256 256 3"]]:
    """Batch number `step`, as a task of an engine."""
    return supply(step)
