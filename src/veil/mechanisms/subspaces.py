"""Lifting: each descriptor becomes an affine subspace that also contains decoys (Dusmanu et al. 2021, Sec. 3.2).

Numbers that were kept in few bits lie on a grid, their grain, for which a lattice attack looks. Descriptors in half precision
(hloc's default) or bfloat16 get a dither as wide as their own steps before they are lifted; those on a grid of 8 bits are
refused (docs/theory/hardened.md#grain-of-float-descriptors).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float, Float32, Float64, Int64, UInt64

from veil.codebooks.codebook import Codebook
from veil.codebooks.compression import Compression
from veil.errors import InputError, RangeError, SpaceError
from veil.features import Features, unit_length
from veil.forms import Subspaces, canonical, lifted_guarantee
from veil.mechanisms.parameters import Parameters, subspace_parameters
from veil.mechanisms.profile import Profile
from veil.randomness import Randomness, below, distinct_below, gaussian, uniform
from veil.space import U8_STEP, Space, root_remedy

MANTISSA_BITS = 23  # of float32, beside the leading one
# Numbers of full precision end in three zero bits by chance once in eight; that all numbers of an image do shows a grid.
FEWEST_ZERO_BITS = 3
FULL_BITS = MANTISSA_BITS - FEWEST_ZERO_BITS + 1
_EIGHT_BIT_ROWS, _BLOCK = 64, 1 << 14  # rows looked at, and rows at a time


@dataclass(frozen=True, kw_only=True)
class Grain:
    """A grid of floating point numbers: each has at most `bits` bits after its leading one, and is a multiple of `step`.

    Half precision has 10 bits and steps of 2^-24, bfloat16 7 bits.
    """

    bits: int
    step: float

    @property
    def is_full(self) -> bool:
        """Whether nothing was cut off: these are numbers as float32 arithmetic gives them."""
        return self.bits >= FULL_BITS

    def spacing(self, values: Float64[np.ndarray, "*batch"]) -> Float64[np.ndarray, "*batch"]:
        """Distance of the neighbors of each value on the grid: all that rounded to it lies within half of it."""
        _, exponents = np.frexp(values)  # value = fraction 2^exponent with the fraction in [1/2, 1)
        relative = np.where(values == 0, 0.0, np.ldexp(1.0, exponents - 1 - self.bits))
        return np.maximum(relative, self.step)


def grain_of(values: Float32[np.ndarray, "rows dim"]) -> Grain:
    """The grid of the coarsest row of `values`, from the last bit that is set in each number; zeros lie on any grid."""
    parts = [_grain(values[start : start + _BLOCK]) for start in range(0, len(values), _BLOCK)]
    return Grain(bits=min(part.bits for part in parts), step=min(part.step for part in parts))


def _grain(rows: Float32[np.ndarray, "rows dim"]) -> Grain:
    whole = rows.view(np.uint32) & np.uint32((1 << MANTISSA_BITS) - 1) | np.uint32(1 << MANTISSA_BITS)
    _, place = np.frexp((whole & (~whole + np.uint32(1))).astype(np.float32))  # of the last bit that is set, from 1 to 24
    place = np.where(rows == 0, MANTISSA_BITS + 1, place)
    _, exponents = np.frexp(np.where(rows == 0, 1, rows))
    return Grain(
        bits=int((MANTISSA_BITS + 1 - place).max(axis=1).min()),
        step=float(np.ldexp(1.0, int((exponents - MANTISSA_BITS + place - 2).min()))),
    )


def on_eight_bit_grid(descriptors: Float[np.ndarray, "rows dim"]) -> bool:
    """Whether most rows are multiples of a step, each of its own, with at most 8 bits and a sign."""
    rows = descriptors[:_EIGHT_BIT_ROWS].astype(np.float64)
    smallest = np.where(np.abs(rows) > 1e-6, np.abs(rows), np.inf).min(axis=1, keepdims=True)
    hits: Bool[np.ndarray, "rows"] = np.zeros(len(rows), dtype=bool)
    for multiple in range(1, 9):  # the smallest entry may itself be a few steps
        scaled = rows / (smallest / multiple)
        fits = np.abs(scaled).max(axis=1) < 256
        hits |= fits & (np.abs(scaled - np.round(scaled)).max(axis=1) < 1e-3)
    return bool(hits.mean() > 0.5)


def grain_to_dither(features: Features, decoys: Codebook, profile: Profile) -> Grain | None:
    """The grid that the hardened profile has to dither away from float descriptors (hardened.md#grain-of-float-descriptors).

    Raises InputError for descriptors on an 8-bit grid, and for decoys on a coarser grid than the descriptors: the grain
    would tell one from the other.
    """
    if profile.name != "hardened":
        return None
    if features.is_quantized:
        if profile.dither_steps < 1:
            raise InputError("8-bit descriptors need a dither of at least one step; use the default hardened profile")
        return None
    if on_eight_bit_grid(features.descriptors):
        raise InputError(
            "these float descriptors were stored in 8 bits before: a lattice attack recovers them exactly; "
            "extract them again in full precision"
        )
    grain = grain_of(features.descriptors)
    if _bits_of(decoys) < min(grain.bits, FULL_BITS):
        raise InputError(
            "the decoys were stored in fewer bits than the descriptors, which would stand out among them; build the pool from "
            "features of the same precision"
        )
    return None if grain.is_full else grain


@lru_cache(maxsize=4)
def _bits_of(decoys: Codebook) -> int:
    """Bits that decoys were stored in after the leading one; 8-bit ones do not go with float descriptors anyway."""
    return FULL_BITS if decoys.stored.dtype == np.uint8 else grain_of(decoys.stored).bits


CHUNK_FEATURES = 256


@runtime_checkable
class DecoyRule(Protocol):
    """Rule that chooses decoys: for the features `rows`, as many of the `available` word indices as `draws` has columns.

    `draws` are uniform 64-bit words, one row for each feature; a rule must use no other randomness. `rows` are rows of the raw
    features, so that labels which never leave the client (for example attributes of a face) can balance the choice.
    `identity` gives, for each of `rows`, everything else that the choice depends on. It keys the draws and is noted in the
    ledger.
    """

    def __call__(
        self,
        rows: Int64[np.ndarray, "features"],
        draws: UInt64[np.ndarray, "features decoys"],
        available: Int64[np.ndarray, "words"],
    ) -> Int64[np.ndarray, "features decoys"]: ...

    def identity(self, rows: Int64[np.ndarray, "features"]) -> list[bytes]: ...


class UniformRule:
    """Uniform choice of decoys, w_i ~ U(W), without repetition within one descriptor (lifting.md#decoys)."""

    def __call__(
        self,
        rows: Int64[np.ndarray, "features"],
        draws: UInt64[np.ndarray, "features decoys"],
        available: Int64[np.ndarray, "words"],
    ) -> Int64[np.ndarray, "features decoys"]:
        """Indices of distinct words for each feature; every set is equally likely."""
        return available[distinct_below(draws, len(available))]

    def identity(self, rows: Int64[np.ndarray, "features"]) -> list[bytes]:
        """One identity for all features: the choice depends on the draws alone."""
        return [b"uniform_rule"] * len(rows)


uniform_rule = UniformRule()


@dataclass(frozen=True, kw_only=True, eq=False)
class RuleForRows:
    """Rule of decoys for some of an image's features: those that are the rows `chosen` of the features that `rule` knows."""

    rule: DecoyRule
    chosen: Int64[np.ndarray, "features"]

    def __call__(
        self,
        rows: Int64[np.ndarray, "rows"],
        draws: UInt64[np.ndarray, "rows decoys"],
        available: Int64[np.ndarray, "words"],
    ) -> Int64[np.ndarray, "rows decoys"]:
        """The choice of `rule` for these features."""
        return self.rule(self.chosen[rows], draws, available)

    def identity(self, rows: Int64[np.ndarray, "rows"]) -> list[bytes]:
        """The identities that `rule` gives these features."""
        return self.rule.identity(self.chosen[rows])


@dataclass(frozen=True, kw_only=True, eq=False)
class Lifted:
    """Subspaces in the order of the features that they were made from, and facts about the lift for the client.

    - `form`: the subspaces.
    - `parameters`: what the draws depend on beside the secret and the image.
    - `slice_index`: the image's sub-database of decoys, None where the strategy uses none.
    - `nearest_decoy`, float64 (features,): smallest distance |w_i - d| of a decoy to the descriptor; infinite without decoys.
    """

    form: Subspaces
    parameters: Parameters
    slice_index: int | None
    nearest_decoy: Float64[np.ndarray, "features"]


@dataclass(frozen=True, kw_only=True, eq=False)
class _Plan:
    """Choices of a lift that are the same for all features of one image; `available` are indices of words in `decoys`.

    `grain` is the grid of float descriptors that were stored in few bits, None where nothing was cut off or nothing is done
    about it.
    """

    features: Features
    profile: Profile
    compression: Compression
    decoys: Codebook
    rule: DecoyRule
    available: Int64[np.ndarray, "words"]
    slice_index: int | None
    space: Space
    grain: Grain | None

    @cached_property
    def parameters(self) -> Parameters:
        """Parameters that open the context of every draw.

        Whatever changes the lift must change the draws, or one draw would serve two lifts and tie them to each other.
        """
        return subspace_parameters(
            self.profile, compression=self.compression, decoys=self.decoys, slice_index=self.slice_index, rule=self.identity
        )

    @cached_property
    def identity(self) -> list[bytes]:
        """Identity of the rule of decoys for each feature."""
        return self.rule.identity(np.arange(len(self.features)))


def lift(
    features: Features,
    *,
    profile: Profile,
    compression: Compression,
    decoys: Codebook,
    randomness: Randomness,
    rule: DecoyRule = uniform_rule,
) -> Lifted:
    """Lift every descriptor d of one image to D = d + span(w_i - d, random), in canonical form (lifting.md#canonical-form).

    All draws depend on `randomness`, parameters, sub-database and descriptor. So equal descriptors get equal lifts
    (release.md#memoized-draws), unless two images drew different sub-databases.

    - `profile`: strategy, dimension m, dither and precision.
    - `compression`: the public PCA, used where the profile says so, and always named by the draws.
    - `decoys`: the words w_i, of the kind that the profile names.
    - `randomness`: what everything is drawn from; a study's makes a form that cannot be released.
    - `rule`: which decoys each feature gets; by default uniform draws.

    Raises SpaceError if features, compression and decoys are not of one descriptor and normalization, or the PCA was made
    for another dither; InputError for a wrong kind of decoys, no features, or descriptors that the hardened profile does
    not lift (8-bit ones without dither); RangeError if m does not fit the dimension; and ReleaseRefused for a profile that
    `veil.mechanisms.parameters` cannot express. Source: Dusmanu et al. 2021, Sec. 3.2 and 4.2.
    """
    plan = _plan(features, profile, compression, decoys, randomness, rule)
    count, dim = len(features), plan.space.dim
    origin = np.empty((count, dim), dtype=np.float32)
    basis = np.empty((count, profile.m, dim), dtype=np.float32)
    nearest = np.empty(count)
    for start in range(0, count, CHUNK_FEATURES):
        rows = np.arange(start, min(start + CHUNK_FEATURES, count))
        origin[rows], basis[rows], nearest[rows] = _lift_rows(plan, randomness, rows)
    form = Subspaces(
        origin=origin,
        basis=basis,
        space=plan.space,
        guarantee=lifted_guarantee(profile.name),
        profile=profile.name,
        releasable=randomness.releasable,
    )
    return Lifted(form=form, parameters=plan.parameters, slice_index=plan.slice_index, nearest_decoy=nearest)


def _plan(
    features: Features, profile: Profile, compression: Compression, decoys: Codebook, source: Randomness, rule: DecoyRule
) -> _Plan:
    """Checked choices of a lift, with the image's sub-database drawn where the strategy uses one."""
    if len(features) == 0:
        raise InputError("there are no features to lift; the image may be blank, or the detector's threshold too high")
    for name, book in (("codebook", compression), ("decoys", decoys)):
        if book.raw_space != features.space:
            raise SpaceError(
                f"the features are [{features.space}] but the {name} holds [{book.raw_space}]; "
                f"extract with that descriptor and normalization, or build a {name} for these features",
                remedy=root_remedy(features.space, book.raw_space),
            )
    if profile.decoy_count and decoys.kind != profile.decoys:
        raise InputError(f"profile {profile.name!r} needs decoys of kind {profile.decoys!r}, got {decoys.kind!r}")
    grain = grain_to_dither(features, decoys, profile)
    space = compression.hardened_space if profile.compress else features.space
    if not profile.m < space.dim:
        raise RangeError(f"m = {profile.m} does not fit {space.dim}-D descriptors; use m < {space.dim}")
    if profile.compress and compression.dither_steps != profile.dither_steps:
        raise SpaceError("the codebook's PCA was made for another dither than the profile's; rebuild the codebook")
    slice_index, available = None, np.arange(len(decoys))
    if profile.uses_slice:
        draw = source.bits64([b"slice|" + features.image_digest], 1)
        slice_index = int(below(draw, decoys.slices)[0, 0])
        available = slice_index * decoys.slice_size + np.arange(decoys.slice_size)
    return _Plan(
        features=features,
        profile=profile,
        compression=compression,
        decoys=decoys,
        rule=rule,
        available=available,
        slice_index=slice_index,
        space=space,
        grain=grain,
    )


def _lift_rows(plan: _Plan, source: Randomness, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Origins, bases and distances of the nearest decoy of the features `rows`."""
    profile, dim = plan.profile, plan.space.dim
    draws = _Draws(source, plan, rows)
    h = profile.decoy_count
    d = _prepare(plan, plan.features.descriptors[rows], draws.dither(1)[:, 0])
    directions = np.empty((len(rows), profile.m, dim))
    nearest = np.full(len(rows), np.inf)
    if h:
        chosen = plan.rule(rows, draws.bits64(h), plan.available)
        w = _prepare_decoys(plan, chosen, draws.dither(h))
        directions[:, :h] = w - d[:, None]  # Dusmanu et al. 2021, Sec. 3.2: d_i = w_i - d
        nearest = np.linalg.norm(directions[:, :h], axis=2).min(axis=1)
    directions[:, h:] = draws.directions(profile.m - h, dim, cube=profile.directions == "cube")
    # From here on only D matters: a point and directions of D are drawn independently of the place of d in D
    # (lifting.md#canonical-form).
    orthonormal = np.swapaxes(np.linalg.qr(np.swapaxes(directions, 1, 2))[0], 1, 2)
    point = d + np.einsum("fm,fmn->fn", gaussian(draws.bits64(profile.m)), orthonormal)
    # Dusmanu et al. 2021, Eq. 10 with Gaussian e_i: the projections of fresh vectors on the directions of D.
    e = gaussian(draws.bits64(profile.m * dim)).reshape(len(rows), profile.m, dim)
    turned = np.einsum("fij,fjn->fin", np.einsum("fin,fjn->fij", e, orthonormal), orthonormal)
    origin, basis = canonical(point, turned)
    return origin.astype(np.float32), basis.astype(np.float32), nearest


def _prepare(plan: _Plan, descriptors: np.ndarray, dither: np.ndarray) -> Float64[np.ndarray, "*batch dim"]:
    """Descriptors ready for lifting: dither, unit length, PCA, each where the profile or the grain asks for it.

    Sources: lifting.md#strategies, hardened.md#grain-of-float-descriptors.
    """
    values = descriptors.astype(np.float64)
    if plan.features.is_quantized:
        values = (values + plan.profile.dither_steps * dither) * U8_STEP
    elif plan.grain is not None:
        values += plan.grain.spacing(values) * (dither - 0.5)
    unit = unit_length(values)
    return plan.compression.require_pca().apply(unit) if plan.profile.compress else unit


def _prepare_decoys(plan: _Plan, chosen: np.ndarray, dither: np.ndarray) -> Float64[np.ndarray, "features decoys dim"]:
    """Decoys ready for lifting, prepared like the descriptor itself, or their rougher grain would give them away."""
    if plan.profile.decoys == "descriptors":
        return _prepare(plan, plan.decoys.stored[chosen], dither)
    unit = plan.decoys.vectors[chosen].astype(np.float64)
    return plan.compression.require_pca().apply(unit) if plan.profile.compress else unit


class _Draws:
    """One row of random 64-bit words for each feature, spent in a fixed order."""

    def __init__(self, source: Randomness, plan: _Plan, rows: np.ndarray) -> None:
        profile, dim = plan.profile, plan.space.dim
        h, raw_dim = profile.decoy_count, plan.features.space.dim
        self._dim = raw_dim
        total = h + (1 + h) * raw_dim + (profile.m - h) * dim + profile.m + profile.m * dim
        opening, identities = plan.parameters.draws, plan.identity
        contexts = [opening + identities[row] + b"|" + plan.features.descriptors[row].tobytes() for row in rows.tolist()]
        self._words = source.bits64(contexts, total)
        self._spent = 0

    def bits64(self, count: int) -> UInt64[np.ndarray, "features count"]:
        taken = self._words[:, self._spent : self._spent + count]
        self._spent += count
        return taken

    def dither(self, vectors: int) -> Float64[np.ndarray, "features vectors dim"]:
        words = self.bits64(vectors * self._dim)
        return uniform(words).reshape(len(words), vectors, self._dim)

    def directions(self, count: int, dim: int, *, cube: bool) -> Float64[np.ndarray, "features count dim"]:
        words = self.bits64(count * dim)
        values = 2 * uniform(words) - 1 if cube else gaussian(words)
        return values.reshape(len(words), count, dim)
