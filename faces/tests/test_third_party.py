"""Verification by a third party: it decides as the holder would, and what it could keep links nothing; broken twins link."""

from __future__ import annotations

import gc
import hashlib
import weakref
from dataclasses import replace

import numpy as np
import pytest

from face_worlds.crowd import SPACE, crowd
from veil import distances
from veil.attacks.intersection.repeat import intersect
from veil.errors import InputError, RangeError
from veil.forms import Subspaces, canonical
from veil.randomness import Secret, Secure, gaussian
from veil_faces import third_party
from veil_faces.template import COMPARISONS, FaceClient, TemplateScheme, decoys_digest, rotation, scores
from veil_faces.third_party import (
    ComparisonAnswer,
    ComparisonRequest,
    SentProbe,
    SentTemplate,
    accepted_answer,
    compared_by_third_party,
    nonce,
    sent_probe,
    sent_template,
)
from worlds import generator

DECOYS = crowd("decoys", 120, 1)
VICTIMS = crowd("victims", 25, 2)
THRESHOLD = 0.7  # pictures of one person are nearer, of two farther


def client(by: str = "p2s") -> FaceClient:
    scheme = TemplateScheme(strategy="hybrid", m=4, comparison=by, space=SPACE, decoys=decoys_digest(DECOYS))
    return FaceClient(scheme=scheme, decoys=DECOYS, secret=Secret(b"s" * 32))


def enrolled(who: FaceClient, row: int) -> Subspaces:
    return who.template(VICTIMS.vectors[row], purpose="door", person=str(row // 2), version=1)


def request(number: int) -> ComparisonRequest:
    return ComparisonRequest(holder=bytes([number] * 16), client=bytes([255 - number] * 16))


def from_holder(who: FaceClient, row: int, number: int, threshold: float = THRESHOLD) -> SentTemplate:
    template, key = enrolled(who, row), who.shared_key("door")
    return sent_template(template, request=request(number), scheme=who.scheme, threshold=threshold, key=key)


def from_client(who: FaceClient, claimed: int, row: int, number: int) -> SentProbe:
    along = enrolled(who, claimed) if who.scheme.comparison == "parallel" else None
    given = {"purpose": "door", "person": str(claimed // 2)}
    return sent_probe(who, VICTIMS.vectors[row], request=request(number), template=along, **given)


@pytest.mark.parametrize("by", COMPARISONS)
def test_it_decides_as_the_holder_would(by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Oracle: the score of direct verification. A threshold a millionth above it accepts, one a millionth below rejects."""
    who, draw = client(by), Secure(b"d" * 32)
    monkeypatch.setattr("veil_faces.template.fresh", lambda: draw)  # both ways lift one probe
    for number, row in enumerate((1, 5)):  # another picture of the person, and a stranger
        template = enrolled(who, 0)
        direct = scores(who.probe(VICTIMS.vectors[row], purpose="door", person="0", template=template), template)[0]
        for off, accepted in ((1e-6, True), (-1e-6, False)):
            holder = from_holder(who, 0, number, threshold=float(direct) + off)
            answer = compared_by_third_party(holder, from_client(who, 0, row, number))
            assert accepted_answer(answer, request=request(number)) is accepted


def test_the_motion_is_that_of_the_definition() -> None:
    """Golden, by docs/theory/faces.md, Eq. 8, written out: both parties must draw alike, whatever versions they have."""
    who = client()
    point = who.probe(VICTIMS.vectors[1], purpose="door")[0][0].astype(np.float64)
    number, shared = bytes([7] * 16) + bytes([248] * 16), who.shared_key("door").key
    draws = [
        Secure(hashlib.blake2b(number + use, key=shared, digest_size=32).digest()) for use in (b"rotation", b"translation")
    ]
    shift = 2.0**20 * gaussian(draws[1].bits64([b"translation"], 64))[0]
    np.testing.assert_allclose(from_client(who, 0, 1, 7).origin, rotation(draws[0], 64) @ point + shift, rtol=0, atol=1e-8)
    words = b"".join(len(word).to_bytes(4, "big") + word for word in (b"veil faces", b"third party", b"door"))
    assert shared == hashlib.blake2b(words, key=b"s" * 32, digest_size=32).digest()


def test_a_message_tells_the_plane_alone() -> None:
    """Oracle: the same template by another of its points, and by other directions that span it, gives the same plane. Otherwise
    the place of the descriptor within its template would go along, whatever the motion is."""
    who = client()
    template, sent = enrolled(who, 0), from_holder(who, 0, 1)
    other = replace(template, origin=template.origin + template.basis[:, 2] - 3 * template.basis[:, 0])
    again = sent_template(other, request=request(1), scheme=who.scheme, threshold=THRESHOLD, key=who.shared_key("door"))
    np.testing.assert_allclose(again.origin, sent.origin, rtol=0, atol=1e-5)
    who = client("parallel")
    frames = [from_holder(who, 0, number).basis @ from_client(who, 0, 1, number).basis.T for number in (1, 2)]
    for frame in frames:  # one plane, whose directions are drawn anew for each side and request
        np.testing.assert_allclose(frame @ frame.T, np.eye(4), atol=1e-9)
    assert np.abs(frames[0] - frames[1]).max() > 0.1 and np.abs(frames[0] - np.eye(4)).max() > 0.1


def test_pairs_of_one_distance_cannot_be_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Oracle: docs/theory/faces.md, Eq. 9. A pair that A and delta move, under Q and t, gives the messages of the pair itself
    under Q A and Q delta + t, up to float32 of the planted pair."""
    who, random = client(), generator("rigid motions")
    (a, q), delta = (np.linalg.qr(random.normal(size=(64, 64)))[0] for _ in range(2)), random.normal(size=64) / 8
    shift, template = 1e3 * random.normal(size=64), enrolled(who, 0)
    point = who.probe(VICTIMS.vectors[1], purpose="door")[0]
    moved = canonical(template.origin @ a.T + delta, template.basis @ a.T)
    draws = ((q @ a, q @ delta + shift, (template.origin, template.basis), point), (q, shift, moved, point @ a.T + delta))
    views = []
    for turn, by, plane, probe in draws:
        monkeypatch.setattr(third_party, "rotation", lambda _, dim, turn=turn: turn if dim == 64 else np.eye(dim))
        monkeypatch.setattr(third_party, "gaussian", lambda _, by=by: by[None] / third_party.SPREAD)
        for form, side in ((plane, b"template"), ((probe, None), b"probe")):
            views.append(third_party._moved(form, key=Secure(b"k" * 32), request=request(1), side=side))
    for one, other in zip(views[:2], views[2:], strict=True):
        np.testing.assert_allclose(one[0], other[0], rtol=0, atol=1e-3)
        np.testing.assert_allclose(one[1], other[1], rtol=0, atol=1e-6)


def linked(sent: dict[tuple[int, int], SentTemplate], people: list[int]) -> int:
    """How many templates of one request a third party finds again in another, by the nearest length of their origins."""
    first, second = (np.array([np.linalg.norm(sent[row, k].origin) for row in people]) for k in (0, 1))
    return int((np.abs(first[:, None] - second).argmin(axis=1) == np.arange(len(people))).sum())


def test_kept_templates_link_only_where_they_are_not_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Oracle: chance, one hit of 25 on average. Broken twin: a rotation without translation leaves the length, which links."""
    who, people = client(), list(range(0, 50, 2))
    places = {(row, k): row + k for row in people for k in (0, 1)}
    assert linked({place: from_holder(who, place[0], number) for place, number in places.items()}, people) < 6
    monkeypatch.setattr(third_party, "SPREAD", 0.0)
    monkeypatch.setattr(third_party, "_require_plane", lambda *_: None)
    assert linked({place: from_holder(who, place[0], number) for place, number in places.items()}, people) == 25


def test_kept_probes_close_in_only_where_they_are_not_moved() -> None:
    """Broken twin: the third party of [D21] keeps fresh lifts of one descriptor, which meet in it. Moved ones meet nowhere."""
    who = client("s2s")
    template = enrolled(who, 0)
    plain = [who.probe(VICTIMS.vectors[1], purpose="door") for _ in range(5)]
    sent = [from_client(who, 0, 1, number) for number in range(5)]
    moved = [(probe.origin[None], probe.basis[None]) for probe in sent]
    turned = client().probe(VICTIMS.vectors[1], purpose="door")[0].astype(np.float64)
    gaps = []
    for kept in (plain, moved):
        single = [(origin.astype(np.float32), basis.astype(np.float32)) for origin, basis in kept if basis is not None]
        forms = [replace(template, origin=origin, basis=basis) for origin, basis in single]
        point = intersect(forms).points.astype(np.float32)
        gaps.append(max(float(distances.pairwise((point, None), (form.origin, form.basis))[0, 0]) for form in forms))
        if kept is plain:
            assert np.abs(point - turned).max() < 1e-3
    assert gaps[0] < 1e-3 and gaps[1] > 1e3


def test_an_old_message_is_of_no_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """A probe or an answer that is sent again is refused, and far if it is renumbered. Broken twin: one motion for all."""
    who = client()
    old, current = from_client(who, 0, 1, 1), from_holder(who, 0, 2)
    with pytest.raises(InputError, match="two requests"):
        compared_by_third_party(current, old)
    assert not compared_by_third_party(current, replace(old, request=request(2))).accepted
    answer = compared_by_third_party(from_holder(who, 0, 1), old)
    assert answer == ComparisonAnswer(request=request(1), accepted=True)
    with pytest.raises(InputError, match="another request than the open one"):
        accepted_answer(answer, request=request(2))
    monkeypatch.setattr(third_party, "_drawn", lambda key, request, use: key)
    again = from_holder(who, 0, 2), replace(from_client(who, 0, 1, 1), request=request(2))
    assert compared_by_third_party(*again).accepted


def test_either_nonce_gives_another_motion() -> None:
    """Neither side can repeat a motion while the other draws its nonce anew, and nonces do not repeat."""
    who, one = client(), request(1)
    requests = [
        one,
        replace(one, holder=nonce()),
        replace(one, client=nonce()),
        ComparisonRequest(holder=one.client, client=one.holder),
    ]
    sent = [sent_probe(who, VICTIMS.vectors[1], request=each, purpose="door").origin for each in requests]
    apart = [np.linalg.norm(a - b) for k, a in enumerate(sent) for b in sent[:k]]
    assert min(apart) > 1e6 and nonce() != nonce()


def test_the_third_party_keeps_nothing() -> None:
    """Oracle: the memory of both messages is free once the parties drop them. Broken twin: one that keeps a message."""
    who, kept = client(), []

    def ask(number: int, *, keep: bool) -> bool:
        probe = from_client(who, 0, 1, number)
        weak = weakref.ref(probe), weakref.ref(probe.origin)
        assert compared_by_third_party(from_holder(who, 0, number), probe).accepted
        if keep:
            kept.append(probe)
        del probe
        gc.collect()
        return all(ref() is None for ref in weak)

    assert ask(1, keep=False) and not ask(2, keep=True)


def test_what_no_party_would_send_is_refused() -> None:
    """More directions, none, or skewed ones would bring two strangers together; so would another scheme."""
    who = client()
    template, probe = from_holder(who, 0, 1), from_client(who, 0, 5, 1)
    with pytest.raises(InputError, match=r"its scheme \(64,\) and \(0, 64\)"):
        replace(probe, basis=template.basis)
    with pytest.raises(InputError, match="not orthonormal"):
        replace(template, basis=np.zeros((4, 64)))
    with pytest.raises(InputError, match="not orthonormal"):
        replace(template, basis=np.full((4, 64), 1e200))
    for wrong in (np.nan, np.inf, 1e300):
        with pytest.raises(InputError, match="farther from zero"):
            replace(probe, origin=np.full(64, wrong))
    with pytest.raises(InputError, match="two schemes"):
        compared_by_third_party(template, replace(probe, scheme=replace(who.scheme, centered=True)))
    for threshold in (np.nan, np.inf, -0.1):
        with pytest.raises(RangeError, match="calibrate one"):
            replace(template, threshold=threshold)
    with pytest.raises(InputError, match="draw it by nonce"):
        ComparisonRequest(holder=b"", client=bytes(16))
    two = enrolled(who, 0).take(np.array([0, 0]))
    with pytest.raises(InputError, match="one template"):
        sent_template(two, request=request(1), scheme=who.scheme, threshold=THRESHOLD, key=who.shared_key("door"))
    with pytest.raises(InputError, match="fits one template"):
        sent_probe(client("parallel"), VICTIMS.vectors[1], request=request(1), purpose="door")
