"""Lifting: each descriptor becomes an affine subspace that also contains decoys (Dusmanu et al. 2021, Sec. 3.2)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float64, Int64, UInt64

from veil import randomness as chance
from veil.codebooks.codebook import Codebook
from veil.errors import InputError, RangeError, SpaceError
from veil.features import Features, unit_length
from veil.forms import Subspaces, canonical, lifted_guarantee
from veil.mechanisms.parameters import Parameters, subspace_parameters
from veil.mechanisms.profile import Profile
from veil.randomness import Randomness
from veil.space import U8_STEP, Space

CHUNK_FEATURES = 256


@runtime_checkable
class DecoyRule(Protocol):
    """Chooses decoys: for the features `rows`, as many of the `available` word indices as `draws` has columns.

    `draws` are uniform 64-bit words, one row a feature; a rule must use no other chance. Rules see the raw side's row
    numbers, so that labels which never leave the client (for example attributes of a face) can balance the choice.
    `identity` is, for each of `rows`, everything else that its choice depends on: it keys the draws, and the ledger has it.
    """

    def __call__(
        self,
        rows: Int64[np.ndarray, "features"],
        draws: UInt64[np.ndarray, "features decoys"],
        available: Int64[np.ndarray, "words"],
    ) -> Int64[np.ndarray, "features decoys"]: ...

    def identity(self, rows: Int64[np.ndarray, "features"]) -> list[bytes]: ...


class UniformRule:
    """w_i ~ U(W) without repetition within one descriptor (lifting.md#decoys)."""

    def __call__(
        self,
        rows: Int64[np.ndarray, "features"],
        draws: UInt64[np.ndarray, "features decoys"],
        available: Int64[np.ndarray, "words"],
    ) -> Int64[np.ndarray, "features decoys"]:
        """Distinct words for each feature, every set equally likely."""
        return available[chance.distinct_below(draws, len(available))]

    def identity(self, rows: Int64[np.ndarray, "features"]) -> list[bytes]:
        """The same for all: the choice depends on the draws alone."""
        return [b"uniform_rule"] * len(rows)


uniform_rule = UniformRule()


@dataclass(frozen=True, kw_only=True, eq=False)
class Lifted:
    """Subspaces in the order of the features that made them, and what the client may want to know about the lift."""

    form: Subspaces
    parameters: Parameters
    slice_index: int | None
    nearest_decoy: Float64[np.ndarray, "features"]


@dataclass(frozen=True, kw_only=True, eq=False)
class _Plan:
    """Everything that is the same for all features of one image."""

    features: Features
    profile: Profile
    codebook: Codebook
    decoys: Codebook
    rule: DecoyRule
    available: Int64[np.ndarray, "words"]
    slice_index: int | None
    space: Space

    @cached_property
    def parameters(self) -> Parameters:
        """Whatever changes the lift must change the draws, else one draw would serve two lifts and tie them."""
        return subspace_parameters(
            self.profile, codebook=self.codebook, decoys=self.decoys, slice_index=self.slice_index, rule=self.identity
        )

    @cached_property
    def identity(self) -> list[bytes]:
        """What the rule says of itself, for each feature."""
        return self.rule.identity(np.arange(len(self.features)))


def lift(
    features: Features,
    *,
    profile: Profile,
    codebook: Codebook,
    decoys: Codebook,
    chance: Randomness,
    rule: DecoyRule = uniform_rule,
) -> Lifted:
    """Lift every descriptor of one image to D = d + span(w_i - d, random), in canonical form (lifting.md#canonical-form).

    `codebook` supplies the public PCA (used when the profile compresses), `decoys` the words. All draws depend on (`chance`,
    parameters, sub-database, descriptor), so equal descriptors get equal lifts (release.md#memoized-draws) unless two images
    drew different sub-databases. Raises SpaceError if features, codebook and decoys are not of one descriptor and
    normalization, InputError for a wrong kind of decoys or no features, RangeError if m does not fit the dimension,
    ReleaseRefused for a profile that `veil.mechanisms.parameters` cannot express.
    """
    plan = _plan(features, profile, codebook, decoys, chance, rule)
    count, dim = len(features), plan.space.dim
    origin = np.empty((count, dim), dtype=np.float32)
    basis = np.empty((count, profile.m, dim), dtype=np.float32)
    nearest = np.empty(count)
    for start in range(0, count, CHUNK_FEATURES):
        rows = np.arange(start, min(start + CHUNK_FEATURES, count))
        origin[rows], basis[rows], nearest[rows] = _lift_rows(plan, chance, rows)
    form = Subspaces(
        origin=origin,
        basis=basis,
        space=plan.space,
        guarantee=lifted_guarantee(profile.name),
        profile=profile.name,
        releasable=chance.releasable,
    )
    return Lifted(form=form, parameters=plan.parameters, slice_index=plan.slice_index, nearest_decoy=nearest)


def _plan(
    features: Features, profile: Profile, codebook: Codebook, decoys: Codebook, source: Randomness, rule: DecoyRule
) -> _Plan:
    if len(features) == 0:
        raise InputError("there are no features to lift; the image may be blank, or the detector's threshold too high")
    for name, book in (("codebook", codebook), ("decoys", decoys)):
        if book.raw_space != features.space:
            raise SpaceError(
                f"the features are [{features.space}] but the {name} holds [{book.raw_space}]; "
                f"extract with that descriptor and normalization, or build a {name} for these features"
            )
    if profile.decoy_count and decoys.kind != profile.decoys:
        raise InputError(f"profile {profile.name!r} needs decoys of kind {profile.decoys!r}, got {decoys.kind!r}")
    _refuse_unsafe(features, profile)
    space = codebook.hardened_space if profile.compress else features.space
    if not profile.m < space.dim:
        raise RangeError(f"m = {profile.m} does not fit {space.dim}-D descriptors; use m < {space.dim}")
    if profile.compress and codebook.dither_steps != profile.dither_steps:
        raise SpaceError("the codebook's PCA was made for another dither than the profile's; rebuild the codebook")
    slice_index, available = None, np.arange(len(decoys))
    if profile.uses_slice:
        draw = source.words([b"slice|" + features.image_digest], 1)
        slice_index = int(chance.below(draw, decoys.slices)[0, 0])
        available = slice_index * decoys.slice_size + np.arange(decoys.slice_size)
    return _Plan(
        features=features,
        profile=profile,
        codebook=codebook,
        decoys=decoys,
        rule=rule,
        available=available,
        slice_index=slice_index,
        space=space,
    )


def _refuse_unsafe(features: Features, profile: Profile) -> None:
    """The hardened profile never lifts what still lies on an 8-bit grid (hardened.md)."""
    if profile.name != "hardened":
        return
    if features.is_quantized and profile.dither_steps < 1:
        raise InputError("8-bit descriptors need a dither of at least one step; use the default hardened profile")
    if not features.is_quantized and _on_grid(features.descriptors):
        raise InputError(
            "these float descriptors were stored in 8 bits before: a lattice attack recovers them exactly; "
            "extract them again in full precision"
        )


def _on_grid(descriptors: np.ndarray) -> bool:
    """Whether most rows are multiples of one step with at most 8 bits and a sign, or all were stored in half precision."""
    rows = descriptors[:64].astype(np.float64)
    if (rows == rows.astype(np.float16)).all():
        return True
    smallest = np.where(np.abs(rows) > 1e-6, np.abs(rows), np.inf).min(axis=1, keepdims=True)
    hits = np.zeros(len(rows), dtype=bool)
    for multiple in range(1, 9):  # the smallest entry may itself be a few steps
        scaled = rows / (smallest / multiple)
        fits = np.abs(scaled).max(axis=1) < 256
        hits |= fits & (np.abs(scaled - np.round(scaled)).max(axis=1) < 1e-3)
    return bool(hits.mean() > 0.5)


def _lift_rows(plan: _Plan, source: Randomness, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    profile, dim = plan.profile, plan.space.dim
    draws = _Draws(source, plan, rows)
    h = profile.decoy_count
    d = _prepare(plan, plan.features.descriptors[rows], draws.dither(1)[:, 0])
    directions = np.empty((len(rows), profile.m, dim))
    nearest = np.full(len(rows), np.inf)
    if h:
        chosen = plan.rule(rows, draws.words(h), plan.available)
        w = _prepare_decoys(plan, chosen, draws.dither(h))
        directions[:, :h] = w - d[:, None]  # Sec. 3.2: d_i = w_i - d
        nearest = np.linalg.norm(directions[:, :h], axis=2).min(axis=1)
    directions[:, h:] = draws.directions(profile.m - h, dim, cube=profile.directions == "cube")
    # From here on only D matters: a point and directions of D, drawn independently of where d lies in it
    # (lifting.md#canonical-form).
    orthonormal = np.swapaxes(np.linalg.qr(np.swapaxes(directions, 1, 2))[0], 1, 2)
    point = d + np.einsum("fm,fmn->fn", chance.gaussian(draws.words(profile.m)), orthonormal)
    # Eq. 10 with Gaussian e_i: the projections of fresh vectors on the directions of D.
    e = chance.gaussian(draws.words(profile.m * dim)).reshape(len(rows), profile.m, dim)
    turned = np.einsum("fij,fjn->fin", np.einsum("fin,fjn->fij", e, orthonormal), orthonormal)
    origin, basis = canonical(point, turned)
    return origin.astype(np.float32), basis.astype(np.float32), nearest


def _prepare(plan: _Plan, descriptors: np.ndarray, dither: np.ndarray) -> Float64[np.ndarray, "*batch dim"]:
    """Dither -> unit length -> PCA, each where the profile says so (lifting.md#strategies)."""
    values = descriptors.astype(np.float64)
    if plan.features.is_quantized:
        values = (values + plan.profile.dither_steps * dither) * U8_STEP
    unit = unit_length(values)
    return plan.codebook.require_pca().apply(unit) if plan.profile.compress else unit


def _prepare_decoys(plan: _Plan, chosen: np.ndarray, dither: np.ndarray) -> Float64[np.ndarray, "features decoys dim"]:
    """Decoys go through the pipeline of d itself, or their rougher grain would give them away."""
    if plan.profile.decoys == "descriptors":
        return _prepare(plan, plan.decoys.stored[chosen], dither)
    unit = plan.decoys.words[chosen].astype(np.float64)
    return plan.codebook.require_pca().apply(unit) if plan.profile.compress else unit


class _Draws:
    """One row of random words a feature, spent in a fixed order."""

    def __init__(self, source: Randomness, plan: _Plan, rows: np.ndarray) -> None:
        profile, dim = plan.profile, plan.space.dim
        h, raw_dim = profile.decoy_count, plan.features.space.dim
        self._dim = raw_dim
        total = h + (1 + h) * raw_dim + (profile.m - h) * dim + profile.m + profile.m * dim
        opening, said = plan.parameters.draws, plan.identity
        contexts = [opening + said[row] + b"|" + plan.features.descriptors[row].tobytes() for row in rows.tolist()]
        self._words = source.words(contexts, total)
        self._spent = 0

    def words(self, count: int) -> UInt64[np.ndarray, "features count"]:
        taken = self._words[:, self._spent : self._spent + count]
        self._spent += count
        return taken

    def dither(self, vectors: int) -> Float64[np.ndarray, "features vectors dim"]:
        words = self.words(vectors * self._dim)
        return chance.uniform(words).reshape(len(words), vectors, self._dim)

    def directions(self, count: int, dim: int, *, cube: bool) -> Float64[np.ndarray, "features count dim"]:
        words = self.words(count * dim)
        values = 2 * chance.uniform(words) - 1 if cube else chance.gaussian(words)
        return values.reshape(len(words), count, dim)
