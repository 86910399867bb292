"""Templates and probes: memoized, turned by purpose, near for one person and far for others; what links them is measured."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from face_worlds.crowd import SPACE, crowd
from veil import distances
from veil.errors import InputError, RangeError, SpaceError
from veil.features import unit_length
from veil.forms import Subspaces
from veil.randomness import Secret, Secure
from veil_faces.collection import centered
from veil_faces.studies.verification import equal_error
from veil_faces.template import FaceClient, TemplateScheme, decoys_digest, rotation, scores

DECOYS = crowd("decoys", 120, 1)
VICTIMS = crowd("victims", 25, 2)


def client(by: str = "p2s", *, keyed: bool = True, secret: bytes = b"s" * 32, strategy: str = "hybrid") -> FaceClient:
    digest = decoys_digest(DECOYS)
    scheme = TemplateScheme(
        strategy=strategy,  # type: ignore[arg-type]
        m=4,
        comparison=by,
        space=SPACE,
        decoys=digest,
        keyed=keyed,
    )
    return FaceClient(scheme=scheme, decoys=DECOYS, secret=Secret(secret))


def enrolled(who: FaceClient, row: int, purpose: str = "door", version: int = 1) -> Subspaces:
    return who.template(VICTIMS.vectors[row], purpose=purpose, person=str(row // 2), version=version)


def test_a_rotation_is_orthogonal_and_its_keys_own() -> None:
    turn = rotation(Secure(b"k" * 32), 64)
    np.testing.assert_allclose(turn @ turn.T, np.eye(64), atol=1e-12)
    np.testing.assert_array_equal(turn, rotation(Secure(b"k" * 32), 64))
    assert np.abs(rotation(Secure(b"l" * 32), 64) - turn).max() > 0.3


def test_an_enrollment_is_memoized_and_a_renewal_is_another() -> None:
    """The same enrollment gives the same template; other versions, purposes and secrets give other templates."""
    first = enrolled(client(), 0)
    np.testing.assert_array_equal(enrolled(client(), 0).origin, first.origin)
    others = [enrolled(client(), 0, version=2), enrolled(client(), 0, "vault"), enrolled(client(secret=b"t" * 32), 0)]
    for other in others:
        assert np.abs(other.origin - first.origin).max() > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize(("by", "most"), [("p2s", 0.05), ("s2s", 0.25)])
@pytest.mark.parametrize("keyed", [True, False])
def test_the_person_is_near_and_others_are_not(by: str, most: float, keyed: bool) -> None:
    """Planted people: another picture of the person scores below everyone else's in nearly all cases."""
    who = client(by, keyed=keyed)
    same, other = [], []
    for row in range(0, 50, 2):
        template = enrolled(who, row)
        same.append(scores(who.probe(VICTIMS.vectors[row + 1], purpose="door"), template)[0])
        other.append(scores(who.probe(VICTIMS.vectors[(row + 3) % 50], purpose="door"), template)[0])
    assert equal_error(np.array(same + other), np.repeat([True, False], 25)) < most


@pytest.mark.slow
def test_a_parallel_probe_is_as_near_as_the_descriptor_and_shows_less() -> None:
    """Oracle: the point's own distance (docs/theory/faces.md, Eq. 2). What lies along the template's directions is missing."""
    who, point = client("parallel", keyed=False), client("p2s", keyed=False)
    for row in range(0, 20, 2):
        template, named = enrolled(who, row), {"purpose": "door", "person": str(row // 2)}
        probe = who.probe(VICTIMS.vectors[row + 1], template=template, **named)
        expected = scores(point.probe(VICTIMS.vectors[row + 1], purpose="door"), template)
        assert scores(probe, template) == pytest.approx(expected, abs=1e-6)
        assert np.abs(template.basis[0] @ probe[0][0]).max() < 1e-6
    with pytest.raises(InputError, match="fits one template"):
        who.probe(VICTIMS.vectors[0], purpose="door", person="0")
    with pytest.raises(InputError, match="say whose"):
        who.probe(VICTIMS.vectors[0], purpose="door", template=enrolled(who, 0))


def test_people_who_are_only_verified_have_rotations_of_their_own() -> None:
    """One descriptor of two people: distances among decoys stay, and their images do not. Broken twin: p2s, one rotation."""
    for by, own in (("parallel", True), ("p2s", False)):
        who = client(by)
        turned = [who._turned(VICTIMS.vectors[:1], "door", person) for person in ("ada", "bob")]
        assert bool(np.abs(turned[0] - turned[1]).max() > 0.1) is own
        probes = [who._turned(VICTIMS.vectors[:2], "door", "ada") for _ in range(2)]
        np.testing.assert_array_equal(probes[0], probes[1])
        assert np.linalg.norm(probes[0][0] - probes[0][1]) == pytest.approx(
            np.linalg.norm(VICTIMS.vectors[0] - VICTIMS.vectors[1]), abs=1e-5
        )


@pytest.mark.slow
def test_renewal_keeps_accuracy() -> None:
    """The equal error of templates renewed from another photograph is that of the first ones, up to what few people tell."""
    people, who = crowd("renewed", 60, 3), client("parallel")
    errors = []
    for version, picture in ((1, 0), (2, 1)):
        same: list[float] = []
        other: list[float] = []
        for row in range(0, 180, 3):
            template = who.template(people.vectors[row + picture], purpose="door", person=str(row), version=version)
            for kind, at in ((same, row + 2), (other, (row + 5) % 180)):
                probe = who.probe(people.vectors[at], purpose="door", person=str(row), template=template)
                kind.append(float(scores(probe, template)[0]))
        errors.append(equal_error(np.array(same + other), np.repeat([True, False], 60)))
    assert errors[0] < 0.1 and abs(errors[1] - errors[0]) < 0.05


@pytest.mark.slow
def test_only_the_key_unlinks_templates_of_two_purposes() -> None:
    """Oracle: the equal error of linking a person's templates of two purposes, made from two pictures. With keys it is that of
    chance, where 0.3 would be seen: it scatters by about 0.04 over 150 pairs of each kind; without, one template finds the
    other (broken twin)."""
    errors = {}
    for keyed in (True, False):
        who = client(keyed=keyed, strategy="random")
        same: list[float] = []
        other: list[float] = []
        for row in range(0, 50, 2):
            template = enrolled(who, row)
            for purpose in [f"vault {number}" for number in range(6 if keyed else 1)]:
                for kind, at in ((same, row + 1), (other, (row + 3) % 50)):
                    second = enrolled(who, at, purpose)
                    kind.append(float(scores((second.origin, second.basis), template)[0]))
        errors[keyed] = equal_error(np.array(same + other), np.repeat([True, False], len(same)))
    assert errors[False] < 0.2 and 0.38 < errors[True] < 0.62


@pytest.mark.slow
def test_a_gallery_finds_unkeyed_templates_and_not_keyed_ones() -> None:
    """The nearest raw descriptor of each person's other picture: right without a key, at chance with it."""
    hit_rates = {}
    for keyed in (True, False):
        hits = 0
        for row in range(0, 50, 2):
            template = enrolled(client(keyed=keyed), row)
            distance = distances.pairwise((VICTIMS.vectors[1::2], None), (template.origin, template.basis))[:, 0]
            hits += int(np.argmin(distance)) == row // 2
        hit_rates[keyed] = hits / 25
    assert hit_rates[False] > 0.9 and hit_rates[True] < 0.2


def test_two_templates_of_one_descriptor_meet_in_it() -> None:
    """Why a renewal needs another photograph: the two subspaces meet exactly in the descriptor."""
    who = client(keyed=False, strategy="random")
    first, second, another = enrolled(who, 0), enrolled(who, 0, version=2), enrolled(who, 1, version=2)
    assert scores((second.origin, second.basis), first)[0] < 1e-6
    assert scores((another.origin, another.basis), first)[0] > 0.05


def test_centered_templates_are_those_of_centered_faces() -> None:
    """Oracle: a client of faces that were centered before; and a point of a template is the centered descriptor."""
    scheme = replace(client(keyed=False).scheme, centered=True)
    who = FaceClient(scheme=scheme, decoys=DECOYS, secret=Secret(b"s" * 32))
    form = who.template(VICTIMS.vectors[0], purpose="door", person="a", version=1)
    point = unit_length(VICTIMS.vectors[:1] - DECOYS.vectors.astype(np.float64).mean(axis=0))
    assert distances.pairwise((point, None), (form.origin, form.basis))[0, 0] < 1e-6
    plain = FaceClient(scheme=replace(scheme, centered=False), decoys=DECOYS, secret=Secret(b"s" * 32))
    other = plain.template(VICTIMS.vectors[0], purpose="door", person="a", version=1)
    assert distances.pairwise((VICTIMS.vectors[:1], None), (other.origin, other.basis))[0, 0] < 1e-6
    with pytest.raises(InputError, match="mean of the others"):
        centered(np.ones((2, 4), dtype=np.float32) / 2, np.full(4, 0.5))


def balanced() -> FaceClient:
    digest = decoys_digest(DECOYS, "sex")
    scheme = TemplateScheme(
        strategy="adversarial", m=3, comparison="p2s", space=SPACE, decoys=digest, keyed=False, balance="sex"
    )
    return FaceClient(scheme=scheme, decoys=DECOYS, secret=Secret(b"s" * 32))


def test_balanced_templates_hold_both_classes() -> None:
    """Of three decoys and the face two are of either sex, with the label told or voted; a wrong one is followed."""
    for row in range(0, 10, 2):
        own = VICTIMS.label("sex")[row]
        other = "b" if own == "a" else "a"
        for label, expected in ((None, other), (own, other), (other, own)):
            form = balanced().template(VICTIMS.vectors[row], purpose="door", person="x", version=1, label=label)
            inside = np.flatnonzero(distances.pairwise((DECOYS.vectors, None), (form.origin, form.basis))[:, 0] < 1e-5)
            labels = [DECOYS.label("sex")[k] for k in inside]
            assert len(labels) == 3 and labels.count(expected) == 2
    with pytest.raises(InputError, match="no sex 'c'; they have a, b"):
        balanced().template(VICTIMS.vectors[0], purpose="door", person="x", version=1, label="c")


def test_a_quota_is_the_callers() -> None:
    """Three decoys of one class in a round and one of the other: the subspace holds more of the first."""
    scheme = replace(balanced().scheme, quota=(("b", 1), ("a", 3)), m=8)
    who = FaceClient(scheme=scheme, decoys=DECOYS, secret=Secret(b"s" * 32))
    form = who.template(VICTIMS.vectors[0], purpose="door", person="x", version=1)
    inside = np.flatnonzero(distances.pairwise((DECOYS.vectors, None), (form.origin, form.basis))[:, 0] < 1e-5)
    labels = [DECOYS.label("sex")[k] for k in inside]
    assert len(labels) == 8 and labels.count("a") > labels.count("b") > 0
    with pytest.raises(InputError, match="a count for each sex: a, b; got a"):
        FaceClient(scheme=replace(scheme, quota=(("a", 3),)), decoys=DECOYS, secret=Secret(b"s" * 32))
    with pytest.raises(RangeError, match="say which with balance"):
        replace(scheme, balance="")


def test_what_cannot_be_balanced_is_refused_at_once() -> None:
    with pytest.raises(RangeError, match="no decoys to balance"):
        replace(balanced().scheme, strategy="random")
    with pytest.raises(InputError, match="not the decoys"):
        swapped = replace(DECOYS, labels={"sex": DECOYS.label("sex")[::-1]})
        replace(balanced(), decoys=swapped)
    one = replace(DECOYS, labels={"sex": ("a",) * 118 + ("b",) * 2})
    with pytest.raises(InputError, match="too few decoys of sex 'b'"):
        FaceClient(scheme=replace(balanced().scheme, decoys=decoys_digest(one, "sex")), decoys=one, secret=Secret(b"s" * 32))


def test_bad_setups_and_faces_are_refused() -> None:
    with pytest.raises(RangeError, match="parallel, p2s, s2s"):
        client("euclid")
    with pytest.raises(RangeError, match="m must be"):
        replace(client().scheme, m=64)
    with pytest.raises(InputError, match="not the decoys"):
        replace(client(), decoys=crowd("others", 120, 1))
    with pytest.raises(SpaceError, match="one network"):
        replace(client(), decoys=replace(DECOYS, space=replace(SPACE, descriptor="another")))
    few = DECOYS.take(np.arange(10))
    with pytest.raises(InputError, match="too few"):
        FaceClient(scheme=replace(client().scheme, decoys=decoys_digest(few)), decoys=few, secret=Secret(b"s" * 32))
    with pytest.raises(InputError, match="one of the decoys"):
        client().template(DECOYS.vectors[0], purpose="door", person="x", version=1)
    for vector in (2 * VICTIMS.vectors[0], np.full(64, np.nan, dtype=np.float32)):
        with pytest.raises(InputError, match="length 1"):
            client().probe(vector, purpose="door")
