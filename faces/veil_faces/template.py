"""Face templates and probes: a template is a descriptor that is rotated by a key of its purpose, and lifted.

By ISO/IEC 24745 a template should be irreversible, unlinkable and renewable. Lifting promises none of these; what the key adds
holds only as long as it is secret (docs/theory/faces.md). Labels and raw descriptors never leave the client.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from jaxtyping import Float32, Float64

from veil import distances
from veil.codebooks.codebook import Codebook
from veil.errors import InputError, RangeError, SpaceError
from veil.features import unit_length
from veil.forms import Subspaces, canonical
from veil.mechanisms.profile import Profile, Strategy
from veil.mechanisms.subspaces import DecoyRule, lift, uniform_rule
from veil.randomness import Secret, Secure, fresh, gaussian
from veil.space import Space
from veil_faces.balance import BalancedRule, guessed
from veil_faces.collection import Faces, as_features, centered

# Kinds of probes: lifted along its template's directions, rotated only (point to subspace), or lifted afresh (subspace to
# subspace).
COMPARISONS = ("parallel", "p2s", "s2s")


@dataclass(frozen=True, kw_only=True)
class TemplateScheme:
    """The way in which all templates of a store are made and compared; thresholds hold for one scheme only.

    - `strategy`, `m`: lifting, and dimension of the subspaces (`veil.mechanisms.profile.Profile`).
    - `comparison`: kind of the probes, one of `COMPARISONS`.
    - `space`: the space of the descriptors.
    - `decoys`: digest of the pool of decoys (`decoys_digest`).
    - `keyed`: descriptors are rotated by a matrix that the client's secret and the purpose give. For parallel probes, which fit
      one template, the person gives it, too (`is_turned_by_person`). Across rotations nothing matches without the secret.
    - `centered`: the mean of the decoys is subtracted first.
    - `balance`: label of the decoys of which lifting draws every class alike (hybrid+, Dusmanu et al. 2021, Sec. 4.3), or "".
    - `quota`: with `balance`, pairs of a class and its number of decoys in a round; empty: one of each class.

    Raises RangeError for choices that do not fit together, or an m outside 1..dim-1. Theory: faces.md#one-among-many.
    """

    strategy: Strategy
    m: int
    comparison: str
    space: Space
    decoys: str
    keyed: bool = True
    centered: bool = False
    balance: str = ""
    quota: tuple[tuple[str, int], ...] = ()

    def __post_init__(self) -> None:
        if self.quota and not self.balance:
            raise RangeError("a quota is of the classes of a label; say which with balance")
        if self.balance and self.strategy == "random":
            raise RangeError("random lifting has no decoys to balance; take hybrid or adversarial lifting")
        if self.comparison not in COMPARISONS:
            raise RangeError(f"templates are compared by {', '.join(COMPARISONS)}, got {self.comparison!r}")
        if not 1 <= self.m < self.space.dim:
            raise RangeError(f"m must be between 1 and {self.space.dim - 1}, got {self.m!r}")
        self.profile  # noqa: B018  refuses strategies that do not fit

    @property
    def is_turned_by_person(self) -> bool:
        """Whether each person's templates have a rotation of their own: those that are only compared one to one.

        Templates that share a rotation show their distances, and decoys that they share give the rotation away
        (docs/theory/faces.md, Eq. 10).
        """
        return self.keyed and self.comparison == "parallel"

    @property
    def profile(self) -> Profile:
        """The profile by which templates and lifted probes are lifted."""
        return Profile(name="face template", strategy=self.strategy, m=self.m, decoys="descriptors")


def decoys_digest(decoys: Faces, balance: str = "") -> str:
    """SHA-256 (hex) of a pool of decoys, and of the label that balances it, if any.

    A template and its probes must hide among the same people.
    """
    digest = hashlib.sha256(decoys.vectors.tobytes())
    if balance:
        digest.update("\0".join([balance, *decoys.label(balance)]).encode())
    return digest.hexdigest()


@dataclass(frozen=True, kw_only=True, eq=False)
class FaceClient:
    """The client's side of a face store: it makes templates and probes.

    - `scheme`: how the store's templates are made.
    - `decoys`: faces of other people, the pool that the scheme names.
    - `secret`: the client's secret, which gives the rotations and the draws.

    Raises SpaceError for decoys of another space, InputError for another pool or too few decoys.
    """

    scheme: TemplateScheme
    decoys: Faces
    secret: Secret

    def __post_init__(self) -> None:
        if self.decoys.space != self.scheme.space:
            raise SpaceError(
                f"decoys are [{self.decoys.space}], templates [{self.scheme.space}]; describe both with one network"
            )
        if decoys_digest(self.decoys, self.scheme.balance) != self.scheme.decoys:
            raise InputError("these are not the decoys that the templates were made with; give that file")
        if len(self.decoys) < 4 * self.scheme.m + 4:
            raise InputError(
                f"{len(self.decoys)} decoys are too few for m = {self.scheme.m}; give {4 * self.scheme.m + 4} or more"
            )
        if self.scheme.balance:
            numbers, classes = self.decoys.classes(self.scheme.balance)
            self._quota(classes)
            sides = [np.bincount(numbers[side::2], minlength=len(classes)) for side in (0, 1)]
            for name, fewest in zip(classes, np.min(sides, axis=0).tolist(), strict=True):
                if fewest < self.scheme.profile.decoy_count:
                    raise InputError(f"there are too few decoys of {self.scheme.balance} {name!r}; give more of them")

    def template(
        self, vector: Float32[np.ndarray, "dim"], *, purpose: str, person: str, version: int, label: str | None = None
    ) -> Subspaces:
        """The template (a single subspace) of a face's descriptor, float32 (dim,) of unit length.

        It is the same each time for one descriptor, purpose, person and version (release.md#memoized-draws). `label` is the
        person's class where decoys are balanced; without it the nearest decoys vote. It decides which decoys are drawn, and is
        stored nowhere. Raises InputError for a class that the decoys do not have, a descriptor of another length, or a face
        that is one of the decoys.
        """
        key = _key(self.secret, "template", purpose, person, str(version))
        return self._lifted(vector, purpose, person, side=0, randomness=key, label=label)

    def probe(
        self,
        vector: Float32[np.ndarray, "dim"],
        *,
        purpose: str,
        person: str | None = None,
        template: Subspaces | None = None,
        label: str | None = None,
    ) -> distances.FeatureSet:
        """The probe of a face's descriptor, float32 (dim,) of unit length, to be compared with templates of a purpose.

        By the scheme's `comparison` it is the rotated descriptor (p2s), a lift among the other half of the decoys (s2s), or the
        subspace through the descriptor along the directions of the `template` of the `person` that it is claimed to fit
        (parallel). Lifts drawn afresh close in on a person's descriptor one by one; parallel ones leave everything along the
        template's directions unknown, and are as far from it as the descriptor itself (docs/theory/faces.md, Eq. 2). `label` is
        as in `template`.
        Raises InputError if a parallel probe has no person, no template, or several, and for a descriptor of another length.
        """
        if self.scheme.comparison == "p2s":
            return self._turned(self._checked(vector)[None], purpose, None), None
        if self.scheme.comparison == "s2s":
            form = self._lifted(vector, purpose, None, side=1, randomness=fresh(), label=label)
            return form.origin, form.basis
        if template is None or len(template) != 1:
            raise InputError("a parallel probe fits one template; compare with many by p2s or s2s")
        if person is None:
            raise InputError("a parallel probe is turned as its person's template is; say whose that is")
        turned = self._turned(self._checked(vector)[None], purpose, person).astype(np.float64)
        origin, basis = canonical(turned, template.basis.astype(np.float64))
        return origin.astype(np.float32), basis.astype(np.float32)

    def shared_key(self, purpose: str) -> Secure:
        """The key that this client gives to the holder of its templates of a purpose, for verification by a third party.

        It serves `veil_faces.third_party` alone: the holder learns neither the secret nor the rotation from it.
        """
        return _key(self.secret, "third party", purpose)

    def _lifted(
        self,
        vector: Float32[np.ndarray, "dim"],
        purpose: str,
        person: str | None,
        *,
        side: int,
        randomness: Secure,
        label: str | None,
    ) -> Subspaces:
        """The lift of a rotated descriptor among half the decoys: even rows for templates (`side` 0), odd rows for probes."""
        rows = np.arange(side, len(self.decoys), 2)
        if (self.decoys.vectors[rows] == self._checked(vector)).all(axis=1).any():
            raise InputError("this face is one of the decoys; decoys must be other people")
        book = self._book(purpose, person, side)
        features = as_features(self._turned(vector[None], purpose, person), self.scheme.space)
        rule = self._rule(vector, rows, label) if self.scheme.balance else uniform_rule
        return lift(
            features, profile=self.scheme.profile, compression=book.compression, decoys=book, randomness=randomness, rule=rule
        ).form

    def _book(self, purpose: str, person: str | None, side: int) -> Codebook:
        """Half the decoys, rotated as a template is. Where all people share one rotation, it is kept, as it takes longest."""
        pool = self.decoys.take(np.arange(side, len(self.decoys), 2))
        if self.scheme.is_turned_by_person:
            return replace(pool, vectors=self._turned(pool.vectors, purpose, person)).pool("face decoys")
        if (purpose, side) not in self._books:
            self._books[purpose, side] = replace(pool, vectors=self._turned(pool.vectors, purpose, person)).pool("face decoys")
        return self._books[purpose, side]

    def _rule(self, vector: Float32[np.ndarray, "dim"], rows: np.ndarray, label: str | None) -> DecoyRule:
        """The rule of balanced decoys for one face of the class `label`; `rows` are the decoys of its side."""
        numbers, classes = self.decoys.classes(self.scheme.balance)
        if label is None:
            own = guessed(self._seen(vector[None]), self._crowd, self.scheme.balance)
        elif label in classes:
            own = np.array([classes.index(label)])
        else:
            raise InputError(f"the decoys have no {self.scheme.balance} {label!r}; they have {', '.join(classes)}")
        return BalancedRule(own=own, pool=numbers[rows], classes=len(classes), quota=self._quota(classes))

    def _quota(self, classes: tuple[str, ...]) -> list[int] | None:
        """Number of decoys of each class in a round; None without a quota. Raises InputError for a quota of other classes."""
        given = dict(self.scheme.quota)
        if given and (set(given) != set(classes) or len(self.scheme.quota) != len(classes)):
            raise InputError(
                f"a quota needs a count for each {self.scheme.balance}: {', '.join(classes)}; got {', '.join(given)}"
            )
        return [given[name] for name in classes] if given else None

    @cached_property
    def _crowd(self) -> Faces:
        """The decoys, centered if the scheme says so, before they are rotated."""
        return replace(self.decoys, vectors=self._seen(self.decoys.vectors))

    @cached_property
    def _books(self) -> dict[tuple[str, int], Codebook]:
        """Rotated pools of decoys by purpose and side."""
        return {}

    @cached_property
    def _middle(self) -> Float64[np.ndarray, "dim"]:
        return self.decoys.middle

    def _seen(self, vectors: Float32[np.ndarray, "faces dim"]) -> Float32[np.ndarray, "faces dim"]:
        """Descriptors with the decoys' mean subtracted, if the scheme says so."""
        return centered(vectors, self._middle) if self.scheme.centered else vectors

    def _turned(
        self, vectors: Float32[np.ndarray, "faces dim"], purpose: str, person: str | None
    ) -> Float32[np.ndarray, "faces dim"]:
        """Descriptors, centered and rotated by the key of a purpose, or of a purpose and a person, as the scheme says."""
        seen = self._seen(vectors)
        if not self.scheme.keyed:
            return seen
        turn = self._rotation(purpose, person if self.scheme.is_turned_by_person else None)
        return unit_length(seen.astype(np.float64) @ turn.T).astype(np.float32)

    def _rotation(self, purpose: str, person: str | None = None) -> Float64[np.ndarray, "dim dim"]:
        words = ("rotation", purpose) if person is None else ("rotation", purpose, person)
        return rotation(_key(self.secret, *words), self.scheme.space.dim)

    def _checked(self, vector: Float32[np.ndarray, "dim"]) -> Float32[np.ndarray, "dim"]:
        """The descriptor itself. Raises InputError for another number of dimensions, or if it is not of unit length."""
        length = float(np.linalg.norm(vector.astype(np.float64)))
        if vector.shape != (self.scheme.space.dim,) or not abs(length - 1) < 1e-3:
            raise InputError(
                f"a face is {self.scheme.space.dim} numbers of length 1, got {vector.shape} of length {length:.3g}"
            )
        return vector


def rotation(key: Secure, dim: int) -> Float64[np.ndarray, "dim dim"]:
    """A uniformly random orthogonal matrix drawn from `key`: Q of a Gaussian matrix, with unique signs (Mezzadri 2007)."""
    q, r = np.linalg.qr(gaussian(key.bits64([b"rotation"], dim * dim)).reshape(dim, dim))
    return q * np.sign(np.diagonal(r))


def scores(probe: distances.FeatureSet, templates: Subspaces) -> Float64[np.ndarray, "templates"]:
    """Distances of one probe to all templates, in their order."""
    return distances.pairwise(probe, (templates.origin, templates.basis))[0]


def _key(secret: Secret, *words: str) -> Secure:
    """A key for the use that `words` name, derived from the secret; lengths of words go in, so that no two uses share a key."""
    text = b"".join(len(word.encode()).to_bytes(4, "big") + word.encode() for word in ("veil faces", *words))
    return Secure(hashlib.blake2b(text, key=secret.key, digest_size=32).digest())
