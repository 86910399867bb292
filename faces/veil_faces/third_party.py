"""Verification by a third party that keeps nothing (Dusmanu et al. 2021, Sec. 5): the messages, and the decision.

The holder of a template and a client each send one message to the third party, which answers the holder with yes or no. [D21]
has the third party trusted. Here both messages are moved by one random rigid motion that only the two parties know, another for
each request. Distances stay; the third party learns them, and cannot tell whose they are (docs/theory/faces.md, Eq. 8-9).
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float32, Float64

from veil.distances.pairs import exact
from veil.distances.sets import FeatureSet
from veil.errors import InputError, RangeError
from veil.forms import Subspaces, canonical
from veil.randomness import Secure, gaussian
from veil_faces.template import FaceClient, TemplateScheme, rotation

NONCE_BYTES = 16
# Standard deviation of the translation, in lengths of a descriptor: what a message tells of a place falls with it, and what
# rounding does to distances grows with it.
SPREAD = 2.0**20


@dataclass(frozen=True, kw_only=True)
class ComparisonRequest:
    """One question to the third party, named by a nonce of the holder and one of the client, 16 bytes each.

    Each side draws its own (`nonce`) for every request, so that neither can have a request repeated. Raises InputError for
    nonces of another length.
    """

    holder: bytes
    client: bytes

    def __post_init__(self) -> None:
        for name, drawn in (("holder", self.holder), ("client", self.client)):
            if len(drawn) != NONCE_BYTES:
                raise InputError(
                    f"the nonce of the {name} has {len(drawn)} bytes, {NONCE_BYTES} are needed; draw it by nonce()"
                )


@dataclass(frozen=True, kw_only=True, eq=False)
class SentProbe:
    """The client's message to the third party: a probe, moved for one request.

    - `origin`, float64 (dim,): the point of the moved probe that is nearest to zero, or the moved point.
    - `basis`, float64 (m, dim): orthonormal rows that span it; none for a point.
    - `scheme`: how the probe was made.

    Raises InputError for numbers that no probe of the scheme has.
    """

    request: ComparisonRequest
    scheme: TemplateScheme
    origin: Float64[np.ndarray, "_"]
    basis: Float64[np.ndarray, "_ _"]

    def __post_init__(self) -> None:
        _require_plane("probe", self.origin, self.basis, 0 if self.scheme.comparison == "p2s" else self.scheme.m, self.scheme)


@dataclass(frozen=True, kw_only=True, eq=False)
class SentTemplate:
    """The holder's message to the third party: a template, moved for one request, and the threshold to decide by.

    - `origin`, float64 (dim,), and `basis`, float64 (m, dim): as in `SentProbe`.
    - `scheme`: how the template was made.
    - `threshold`: the largest distance that is accepted, calibrated for this scheme.

    Raises InputError for numbers that no template of the scheme has, RangeError for a threshold that is no distance.
    """

    request: ComparisonRequest
    scheme: TemplateScheme
    origin: Float64[np.ndarray, "_"]
    basis: Float64[np.ndarray, "_ _"]
    threshold: float

    def __post_init__(self) -> None:
        _require_plane("template", self.origin, self.basis, self.scheme.m, self.scheme)
        if not 0 <= self.threshold < np.inf:
            raise RangeError(f"threshold must be a distance, finite and not negative, got {self.threshold!r}; calibrate one")


@dataclass(frozen=True, kw_only=True)
class ComparisonAnswer:
    """The third party's answer to the holder: yes or no to a request. It has no distance, which would help to guess."""

    request: ComparisonRequest
    accepted: bool


def nonce() -> bytes:
    """A fresh nonce of 16 bytes from the operating system, for one request."""
    return os.urandom(NONCE_BYTES)


def sent_template(
    template: Subspaces, *, request: ComparisonRequest, scheme: TemplateScheme, threshold: float, key: Secure
) -> SentTemplate:
    """The holder's message for a request, from the single `template` of the claimed person.

    `key` is the client's (`FaceClient.shared_key`). Raises InputError for several templates, or one of another scheme.
    """
    if len(template) != 1 or template.space != scheme.space:
        raise InputError(f"one template of [{scheme.space}] is compared, got {len(template)} of [{template.space}]")
    origin, basis = _moved((template.origin, template.basis), key=key, request=request, side=b"template")
    return SentTemplate(request=request, scheme=scheme, origin=origin, basis=basis, threshold=threshold)


def sent_probe(
    client: FaceClient,
    vector: Float32[np.ndarray, "dim"],
    *,
    request: ComparisonRequest,
    purpose: str,
    person: str | None = None,
    template: Subspaces | None = None,
    label: str | None = None,
) -> SentProbe:
    """The client's message for a request, from a face's descriptor, float32 (dim,) of unit length.

    `person`, `template` and `label` are as in `FaceClient.probe`, with the same errors. Draw the request's client nonce
    anew for each probe: two probes in one motion tell how they lie to each other.
    """
    origin, basis = client.probe(vector, purpose=purpose, person=person, template=template, label=label)
    if client.scheme.comparison == "parallel":
        assert template is not None  # else the probe was refused
        basis = template.basis  # to the last bit: far from zero, planes whose directions differ by rounding part
    moved, frame = _moved((origin, basis), key=client.shared_key(purpose), request=request, side=b"probe")
    return SentProbe(request=request, scheme=client.scheme, origin=moved, basis=frame)


def compared_by_third_party(template: SentTemplate, probe: SentProbe) -> ComparisonAnswer:
    """The third party's whole work: whether the distance of the two messages is at most the threshold. It keeps nothing.

    A message of an earlier request that is sent again lies in the motion of that request, and is rejected like a stranger's.
    Raises InputError for messages of two requests, or of two schemes, whose distance means nothing.
    """
    if template.request != probe.request:
        raise InputError("the template and the probe are of two requests; ask both parties for messages of one request")
    if template.scheme != probe.scheme:
        raise InputError("the template and the probe are of two schemes; both parties must use the scheme of the store")
    only = np.zeros(1, dtype=np.int64)
    distance = exact((template.origin[None], template.basis[None]), _plane(probe.origin, probe.basis), only, only)[0]
    return ComparisonAnswer(request=template.request, accepted=bool(distance <= template.threshold))


def accepted_answer(answer: ComparisonAnswer, *, request: ComparisonRequest) -> bool:
    """Whether the third party accepted, for the holder, who gives the `request` that it has open and closes it.

    Raises InputError for an answer to another request, as one that is sent again.
    """
    if answer.request != request:
        raise InputError("this answers another request than the open one; reject it, and ask again under a new request")
    return answer.accepted


def _moved(
    plane: FeatureSet, *, key: Secure, request: ComparisonRequest, side: bytes
) -> tuple[Float64[np.ndarray, "dim"], Float64[np.ndarray, "m dim"]]:
    """Origin and basis of a single form after the rigid motion of a request (docs/theory/faces.md, Eq. 8).

    Rows of the basis are drawn anew for each `side`. The draws are version 1 of the protocol and must not change.
    """
    origin, basis = plane
    dim = origin.shape[1]
    turn = rotation(_drawn(key, request, b"rotation"), dim)
    shift = SPREAD * gaussian(_drawn(key, request, b"translation").bits64([b"translation"], dim))[0]
    moved = origin.astype(np.float64) @ turn.T + shift
    if basis is None:
        return moved[0], np.empty((0, dim))
    m = basis.shape[1]
    frame = rotation(_drawn(key, request, b"frame of the " + side), m) @ basis[0].astype(np.float64) @ turn.T
    nearest, rows = canonical(moved, frame[None])
    return nearest[0], rows[0]


def _drawn(key: Secure, request: ComparisonRequest, use: bytes) -> Secure:
    """The key of one draw of a request; both nonces have one length, so that no two requests share it."""
    return Secure(hashlib.blake2b(request.holder + request.client + use, key=key.key, digest_size=32).digest())


def _plane(origin: Float64[np.ndarray, "dim"], basis: Float64[np.ndarray, "m dim"]) -> FeatureSet:
    return origin[None], basis[None] if len(basis) else None


def _require_plane(
    name: str, origin: Float[np.ndarray, "..."], basis: Float[np.ndarray, "..."], m: int, scheme: TemplateScheme
) -> None:
    """Raise InputError unless `origin` and `basis` are what a motion gives: finite, of the scheme's shapes, orthonormal.

    More directions than the scheme has, or a direction that is none, would bring any two faces together.
    """
    dim = scheme.space.dim
    if origin.shape != (dim,) or basis.shape != (m, dim):
        raise InputError(f"the {name} has shapes {origin.shape} and {basis.shape}, its scheme ({dim},) and ({m}, {dim})")
    if not (np.abs(origin) < 10 * SPREAD).all():  # also catches NaN
        raise InputError(f"the {name} is NaN, infinite, or farther from zero than a motion takes it; reject the request")
    if not (np.abs(basis) < 2).all() or not np.allclose(basis @ basis.T, np.eye(m), rtol=0, atol=1e-9):
        raise InputError(f"the rows of the {name}'s basis are not orthonormal; reject the request")
