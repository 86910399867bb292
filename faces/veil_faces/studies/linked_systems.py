"""Systems whose stores an attacker links: templates of ours, of published schemes, of no protection, and noise.

A template is a row of numbers. Keys are numbers that seed the generator of a study, one for each row: all alike for a store of
one key, or one for each person.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float64, Int64

from veil.codebooks.codebook import Codebook
from veil.distances.pairs import exact
from veil.features import unit_length
from veil.forms import Subspaces
from veil.mechanisms.profile import Profile, Strategy
from veil.mechanisms.subspaces import lift
from veil.randomness import Secure, seeded
from veil_faces.collection import Faces, as_features
from veil_faces.studies.published_schemes import Coder, IndexOfMax, PublishedScheme
from veil_faces.studies.template_estimates import Crowd, fitted_mixture, ingredients, mixed
from veil_faces.template import rotation

Rows = Float64[np.ndarray, "templates numbers"]
Keys = Int64[np.ndarray, "templates"]


@runtime_checkable
class LinkedSystem(Protocol):
    """A system as its attacker sees it.

    - `templates`: those of descriptors (N, dim) under keys; `case` seeds draws that are not the key's, such as decoys.
    - `distances`: of probes, descriptors (P, dim) under a template's key, from that template.
    - `pair_features`: numbers that a network reads of pairs of templates under unknown keys.
    - `alikeness`: of all templates of one store among each other, larger for more alike; no key is needed.
    - `estimates`: descriptors of unit length, from templates whose keys are known.
    """

    @property
    def name(self) -> str: ...

    def templates(self, vectors: np.ndarray, keys: Keys, case: str) -> Rows: ...

    def distances(
        self, probes: np.ndarray, key: int, template: Float64[np.ndarray, "numbers"]
    ) -> Float64[np.ndarray, "probes"]: ...

    def pair_features(self, left: Rows, right: Rows) -> Float64[np.ndarray, "templates features"]: ...

    def alikeness(self, templates: Rows) -> Float64[np.ndarray, "templates templates"]: ...

    def estimates(self, templates: Rows, keys: Keys) -> Float64[np.ndarray, "templates dim"]: ...


def compared_numbers(left: Rows, right: Rows) -> Float64[np.ndarray, "templates features"]:
    """Products and absolute differences of two rows of unit length, and their cosine."""
    a, b = unit_length(left), unit_length(right)
    product = a * b
    return np.concatenate([product, np.abs(a - b), product.sum(axis=1, keepdims=True)], axis=1)


@dataclass(frozen=True, kw_only=True)
class Unprotected:
    """No protection: the template is the descriptor. The broken scheme against which every attack must win."""

    name: str = "none"

    def templates(self, vectors: np.ndarray, keys: Keys, case: str) -> Rows:
        """The descriptors."""
        return vectors.astype(np.float64)

    def distances(
        self, probes: np.ndarray, key: int, template: Float64[np.ndarray, "numbers"]
    ) -> Float64[np.ndarray, "probes"]:
        """Euclidean distances."""
        return np.linalg.norm(probes - template, axis=1)

    def pair_features(self, left: Rows, right: Rows) -> Float64[np.ndarray, "templates features"]:
        """Products and differences."""
        return compared_numbers(left, right)

    def alikeness(self, templates: Rows) -> Float64[np.ndarray, "templates templates"]:
        """Cosines."""
        return templates @ templates.T

    def estimates(self, templates: Rows, keys: Keys) -> Float64[np.ndarray, "templates dim"]:
        """The descriptors."""
        return templates


@dataclass(frozen=True, kw_only=True)
class Noise(Unprotected):
    """Random unit vectors in place of templates, drawn for each key and row: no attack may win."""

    name: str = "noise"

    def templates(self, vectors: np.ndarray, keys: Keys, case: str) -> Rows:
        """Random directions, whoever is described."""
        random = np.random.default_rng(int.from_bytes(seeded(case).bits64([b"noise"], 1).tobytes(), "little"))
        return unit_length(random.normal(size=vectors.shape))

    def distances(
        self, probes: np.ndarray, key: int, template: Float64[np.ndarray, "numbers"]
    ) -> Float64[np.ndarray, "probes"]:
        """Random numbers between 0 and 2, whatever the probes are: equal probes have equal ones."""
        return 1e7 * np.abs(probes @ np.random.default_rng(key).normal(size=probes.shape[1])) % 2


@dataclass(frozen=True, kw_only=True, eq=False)
class Coded:
    """A published scheme; the attacker inverts codes of a known key by least squares on `own`, descriptors that he has."""

    scheme: PublishedScheme
    own: Float64[np.ndarray, "_ _"]

    @property
    def name(self) -> str:
        """The scheme's name."""
        return self.scheme.name

    def templates(self, vectors: np.ndarray, keys: Keys, case: str) -> Rows:
        """Codes under the keys."""
        rows = [self._coder(int(key))(vectors[keys == key]) for key in np.unique(keys)]
        codes = np.empty((len(vectors), rows[0].shape[1]))
        for key, part in zip(np.unique(keys), rows, strict=True):
            codes[keys == key] = part
        return codes

    def distances(
        self, probes: np.ndarray, key: int, template: Float64[np.ndarray, "numbers"]
    ) -> Float64[np.ndarray, "probes"]:
        """Distances of codes."""
        codes = self._coder(key)(probes)
        return self.scheme.distance(codes, np.broadcast_to(template, codes.shape))

    def pair_features(self, left: Rows, right: Rows) -> Float64[np.ndarray, "templates features"]:
        """Which numbers are equal, where codes hold symbols; else products and differences."""
        if self.scheme.name == "PolyProtect":
            return compared_numbers(left, right)
        equal = (left == right).astype(np.float64)
        return np.concatenate([equal, equal.mean(axis=1, keepdims=True)], axis=1)

    def alikeness(self, templates: Rows) -> Float64[np.ndarray, "templates templates"]:
        """1 less the distance."""
        return np.stack([1 - self.scheme.distance(np.broadcast_to(row, templates.shape), templates) for row in templates])

    def estimates(self, templates: Rows, keys: Keys) -> Float64[np.ndarray, "templates dim"]:
        """The least squares estimates of the descriptors, by key; directions that symbols name need no key of their own."""
        dim = self.own.shape[1]
        if isinstance(self.scheme, IndexOfMax):
            directions = [
                self.scheme.named_directions(row[None], int(key), dim) for row, key in zip(templates, keys, strict=True)
            ]
            return unit_length(ridge_estimates(self._named, self.own, np.concatenate(directions)))
        result = np.empty((len(templates), dim))
        for key in np.unique(keys):
            rows = keys == key
            result[rows] = ridge_estimates(self._coder(int(key))(self.own), self.own, templates[rows])
        return unit_length(result)

    @cached_property
    def _named(self) -> Rows:
        """Directions that codes of the attacker's faces name under one key, which stands for all."""
        assert isinstance(self.scheme, IndexOfMax)
        return self.scheme.named_directions(self._coder(0)(self.own), 0, self.own.shape[1])

    def _coder(self, key: int) -> Coder:
        """The coder of a key; the last one is kept, as attackers ask it again and again."""
        if self._kept.get("key") != key:
            self._kept.update(key=key, coder=self.scheme.coder(key, self.own.shape[1]))
        coder: Coder = self._kept["coder"]
        return coder

    @cached_property
    def _kept(self) -> dict[str, Any]:
        return {}


def ridge_estimates(
    inputs: Float64[np.ndarray, "own numbers"],
    wanted: Float64[np.ndarray, "own dim"],
    given: Float64[np.ndarray, "rows numbers"],
) -> Float64[np.ndarray, "rows dim"]:
    """Linear estimates from `given` numbers, fitted to pairs of numbers and descriptors, with a penalty of 0.05 a pair."""
    middle, target = inputs.mean(axis=0), wanted.mean(axis=0)
    scale = np.maximum(inputs.std(axis=0), 1e-12)
    rows = (inputs - middle) / scale
    penalty = 0.05 * len(rows) * np.eye(rows.shape[1])
    weights = np.linalg.solve(rows.T @ rows + penalty, rows.T @ (wanted - target))
    estimate: Float64[np.ndarray, "rows dim"] = target + ((given - middle) / scale) @ weights
    return estimate


@dataclass(frozen=True, kw_only=True, eq=False)
class LiftedSystem:
    """Templates of veil: descriptors lifted among decoys of `pool`, then rotated by the key (docs/theory/faces.md, Eq. 1).

    The attacker knows the pool, and fits his estimates on `own`, descriptors that he has. A probe is a rotated descriptor; a
    parallel one has the same distance (docs/theory/faces.md, Eq. 2).
    """

    pool: Faces
    own: Float64[np.ndarray, "_ _"]
    lifting: Strategy = "hybrid"
    m: int = 4
    name: str = field(default="veil")

    @property
    def decoys(self) -> int:
        """Number of decoys of a template."""
        return Profile(name="study", strategy=self.lifting, m=self.m, decoys="descriptors").decoy_count

    @cached_property
    def crowd(self) -> Crowd:
        """The law of the attacker's faces."""
        return Crowd.of(self.own)

    def parts(self, templates: Rows) -> tuple[Float64[np.ndarray, "templates dim"], Float64[np.ndarray, "templates m dim"]]:
        """Origins and bases of rows of numbers."""
        dim = self.own.shape[1]
        return templates[:, :dim], templates[:, dim:].reshape(len(templates), self.m, dim)

    def templates(self, vectors: np.ndarray, keys: Keys, case: str) -> Rows:
        """Lifted and rotated descriptors: origin and basis in one row."""
        origin, basis = self._lifted(vectors, case)
        for key in np.unique(keys):
            rows, turn = keys == key, turn_of(int(key), vectors.shape[1])
            origin[rows], basis[rows] = origin[rows] @ turn.T, basis[rows] @ turn.T
        flat: Rows = np.concatenate([origin, basis.reshape(len(origin), -1)], axis=1)
        return flat.astype(np.float32).astype(np.float64)

    def distances(
        self, probes: np.ndarray, key: int, template: Float64[np.ndarray, "numbers"]
    ) -> Float64[np.ndarray, "probes"]:
        """Distances of rotated descriptors from a subspace, in residual form."""
        origin, basis = self.parts(template[None])
        residual = probes @ turn_of(key, probes.shape[1]).T - origin
        orthonormal = np.linalg.qr(basis[0].T)[0]
        for _ in range(2):  # the second pass removes what rounding left
            residual = residual - (residual @ orthonormal) @ orthonormal.T
        return np.linalg.norm(residual, axis=1)

    def pair_features(self, left: Rows, right: Rows) -> Float64[np.ndarray, "templates features"]:
        """Products and differences of origins, the distance of the subspaces, and lengths of origins."""
        (a, first), (b, second) = self.parts(left), self.parts(right)
        each = np.arange(len(left))
        lengths = np.stack([np.linalg.norm(a, axis=1), np.linalg.norm(b, axis=1)], axis=1)
        apart = exact((a, first), (b, second), each, each)
        return np.concatenate(
            [compared_numbers(a, b), apart[:, None], lengths, np.abs(lengths[:, :1] - lengths[:, 1:])], axis=1
        )

    def alikeness(self, templates: Rows) -> Float64[np.ndarray, "templates templates"]:
        """Inner products of centered origins, which lie less near to each other than subspaces that share a decoy."""
        origin, _ = self.parts(templates)
        middle = origin - origin.mean(axis=0)
        return middle @ middle.T

    def estimates(self, templates: Rows, keys: Keys) -> Float64[np.ndarray, "templates dim"]:
        """Mixtures of what the turned back subspaces hold."""
        origin, basis = (part.copy() for part in self.parts(templates))
        for key in np.unique(keys):
            rows, turn = keys == key, turn_of(int(key), origin.shape[1])
            origin[rows], basis[rows] = origin[rows] @ turn, basis[rows] @ turn
        return mixed(ingredients(origin, basis, self.pool.vectors, self.decoys, self.crowd), self.mixture)

    def subspaces(self, templates: Rows) -> Subspaces:
        """Templates as subspaces."""
        origin, basis = (part.astype(np.float32) for part in self.parts(templates))
        return replace(self._form(self.own[:1], "prototype"), origin=origin, basis=basis)

    @cached_property
    def mixture(self) -> Float64[np.ndarray, "4"]:
        """The attacker's weights, fitted on lifts of his own faces."""
        origin, basis = self._lifted(self.own, "own faces of the attacker")
        return fitted_mixture(ingredients(origin, basis, self.pool.vectors, self.decoys, self.crowd), self.own)

    @cached_property
    def _book(self) -> Codebook:
        return self.pool.pool("study")

    def _lifted(self, vectors: np.ndarray, case: str) -> tuple[np.ndarray, np.ndarray]:
        """Origins and bases before they are rotated, float64."""
        form = self._form(vectors, case)
        return form.origin.astype(np.float64), form.basis.astype(np.float64)

    def _form(self, vectors: np.ndarray, case: str) -> Subspaces:
        profile = Profile(name="study", strategy=self.lifting, m=self.m, decoys="descriptors")
        features, book = as_features(vectors.astype(np.float32), self.pool.space), self._book
        return lift(features, profile=profile, compression=book.compression, decoys=book, randomness=seeded(case)).form


@lru_cache(maxsize=512)
def turn_of(key: int, dim: int) -> Float64[np.ndarray, "dim dim"]:
    """The rotation of a study's key, drawn as the product draws it."""
    return rotation(Secure(f"study {key}".encode().ljust(32)), dim)
