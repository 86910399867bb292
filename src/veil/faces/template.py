"""Templates: a face's descriptor turned by a key of its purpose, and lifted; probes that are compared with them.

In the words of ISO/IEC 24745 a template should be irreversible, unlinkable and renewable. Lifting promises none of these; what
the key adds holds only as long as it is secret (docs/theory/faces.md). Labels and raw descriptors never leave the client.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float32, Float64

from veil import kernels
from veil.chance import Secret, Secure, fresh, gaussian
from veil.errors import InputError, RangeError, SpaceError
from veil.faces.collection import Faces, as_features
from veil.features import unit_length
from veil.forms import Subspaces, canonical
from veil.privatize.profile import Profile, Strategy
from veil.privatize.subspace import lift
from veil.space import Space

# How a probe is sent: lifted along its template's directions, turned only, or lifted afresh.
WAYS = ("parallel", "p2s", "s2s")


@dataclass(frozen=True, kw_only=True)
class Setup:
    """How all templates of a store are made and compared: thresholds hold for one setup only (traps D20).

    With `keyed` the descriptor is turned by a rotation that the client's secret and the purpose give: distances within a
    purpose stay, across purposes, and to those who lack the secret, nothing matches.
    """

    strategy: Strategy
    m: int
    by: str
    space: Space
    decoys: str
    keyed: bool = True

    def __post_init__(self) -> None:
        if self.by not in WAYS:
            raise RangeError(f"templates are compared by {', '.join(WAYS)}, got {self.by!r}")
        if not 1 <= self.m < self.space.dim:
            raise RangeError(f"m must be between 1 and {self.space.dim - 1}, got {self.m!r}")
        self.profile  # noqa: B018  refuses strategies that do not fit

    @property
    def profile(self) -> Profile:
        """The lifting of templates and lifted probes."""
        return Profile(name="face template", strategy=self.strategy, m=self.m, decoys="descriptors")


def decoys_digest(decoys: Faces) -> str:
    """SHA-256 (hex) of a pool: a template and its probes must hide among the same people."""
    return hashlib.sha256(decoys.vectors.tobytes()).hexdigest()


@dataclass(frozen=True, kw_only=True, eq=False)
class Client:
    """What makes templates and probes: the setup, the pool of other people, and the client's secret."""

    setup: Setup
    decoys: Faces
    secret: Secret

    def __post_init__(self) -> None:
        if self.decoys.space != self.setup.space:
            raise SpaceError(
                f"decoys are [{self.decoys.space}], templates [{self.setup.space}]; describe both with one network"
            )
        if decoys_digest(self.decoys) != self.setup.decoys:
            raise InputError("these are not the decoys that the templates were made with; give that file")
        if len(self.decoys) < 4 * self.setup.m + 4:
            raise InputError(
                f"{len(self.decoys)} decoys are too few for m = {self.setup.m}; give {4 * self.setup.m + 4} or more"
            )

    def template(self, vector: Float32[np.ndarray, "dim"], *, purpose: str, person: str, version: int) -> Subspaces:
        """The template of an enrollment: the same each time for one descriptor and version (traps D15)."""
        key = _key(self.secret, "template", purpose, person, str(version))
        return self._lifted(vector, purpose, side=0, chance=key)

    def probe(self, vector: Float32[np.ndarray, "dim"], *, purpose: str, template: Subspaces | None = None) -> kernels.Set:
        """What is compared with templates: the turned descriptor (p2s), a lift among the other half of the decoys (s2s), or the
        subspace through it along the directions of the `template` that it is claimed to fit (parallel).

        Lifts drawn afresh close in on a person's descriptor one by one; parallel ones leave everything along the template's
        directions unknown, and are as far from it as the descriptor itself (docs/theory/faces.md, Eq. 2).
        Raises InputError if a parallel probe has no template, or several.
        """
        if self.setup.by == "p2s":
            return self._turned(self._checked(vector)[None], purpose), None
        if self.setup.by == "s2s":
            form = self._lifted(vector, purpose, side=1, chance=fresh())
            return form.origin, form.basis
        if template is None or len(template) != 1:
            raise InputError("a parallel probe fits one template; compare with many by p2s or s2s")
        turned = self._turned(self._checked(vector)[None], purpose).astype(np.float64)
        origin, basis = canonical(turned, template.basis.astype(np.float64))
        return origin.astype(np.float32), basis.astype(np.float32)

    def _lifted(self, vector: Float32[np.ndarray, "dim"], purpose: str, *, side: int, chance: Secure) -> Subspaces:
        pool = self.decoys.take(np.arange(side, len(self.decoys), 2))
        if set(map(bytes, pool.vectors)) & {self._checked(vector).tobytes()}:
            raise InputError("this face is one of the decoys; decoys must be other people")
        book = replace(pool, vectors=self._turned(pool.vectors, purpose)).pool("face decoys")
        features = as_features(self._turned(vector[None], purpose), self.setup.space)
        return lift(features, profile=self.setup.profile, codebook=book, decoys=book, chance=chance).form

    def _turned(self, vectors: Float32[np.ndarray, "faces dim"], purpose: str) -> Float32[np.ndarray, "faces dim"]:
        if not self.setup.keyed:
            return vectors
        turn = rotation(_key(self.secret, "rotation", purpose), self.setup.space.dim)
        return unit_length(vectors.astype(np.float64) @ turn.T).astype(np.float32)

    def _checked(self, vector: Float32[np.ndarray, "dim"]) -> Float32[np.ndarray, "dim"]:
        length = float(np.linalg.norm(vector.astype(np.float64)))
        if vector.shape != (self.setup.space.dim,) or not abs(length - 1) < 1e-3:
            raise InputError(f"a face is {self.setup.space.dim} numbers of length 1, got {vector.shape} of length {length:.3g}")
        return vector


def rotation(key: Secure, dim: int) -> Float64[np.ndarray, "dim dim"]:
    """A uniformly random orthogonal matrix: Q of a Gaussian matrix, signs made unique (Mezzadri 2007)."""
    q, r = np.linalg.qr(gaussian(key.words([b"rotation"], dim * dim)).reshape(dim, dim))
    return q * np.sign(np.diagonal(r))


def scores(probe: kernels.Set, templates: Subspaces) -> Float64[np.ndarray, "templates"]:
    """Distances of one probe to templates."""
    return kernels.distances(probe, (templates.origin, templates.basis))[0]


def _key(secret: Secret, *words: str) -> Secure:
    """A key for one use; each word's length goes in, so that no two uses share one."""
    text = b"".join(len(word.encode()).to_bytes(4, "big") + word.encode() for word in ("veil faces", *words))
    return Secure(hashlib.blake2b(text, key=secret.key, digest_size=32).digest())
