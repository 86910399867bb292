"""`veil faces verify | identify`: a face is compared with templates; every kind of no has the same exit code."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from veil.cli.common import at_least, say, write_json
from veil.cli.records import option
from veil.cli.remedies import advised
from veil.errors import InputError, NoFace
from veil.files.photographs.pictures import read_rgb
from veil_faces.answers import band_of
from veil_faces.attempts import AttemptsSpent, utc
from veil_faces.cli.asked_network import chosen_network
from veil_faces.cli.asked_store import AskedFace, AskedPerson, opened_store
from veil_faces.files.faces import holds_faces, read_faces
from veil_faces.naming import checked_name
from veil_faces.template import TemplateScheme, scores

# Faces narrower than this are not enrolled or verified.
LEAST_PX = 60
EXACT = "tell distances, not only their bands"
# Exit code of `verify` and `identify` where nobody is accepted, whatever the reason.
EXIT_NO = 3


@dataclass(frozen=True, kw_only=True)
class Verify(AskedFace, AskedPerson):
    """Compare a face with one template. Exit code 0: accepted. Exit code 3: no, whatever the reason: too far, nobody of
    that name, revoked, no face found, several, one too small, or too many failed attempts; --json says which. 1: the
    question could not be asked (no threshold, other decoys, a damaged store, an unreadable photograph). A no has a
    band of the distance, and answers have the distance itself with --exact alone: whoever sees distances of probes of
    his own solves for the template. Failed attempts are limited for each person (veil faces create --failures).
    """

    exact: bool = option(EXACT, default=False)


@dataclass(frozen=True, kw_only=True)
class Identify(AskedFace):
    """Compare a face with all templates of a purpose, at the threshold that was calibrated for their number: the more there
    are, the nearer a face must be, or strangers get in. Exit code 3 where nobody is accepted, whatever the reason, as
    for verify. Refused where the calibration had too few people to speak for that number of templates. Failed attempts
    are limited for the whole store; of an accepted face, only accepted candidates are listed (without --exact).
    """

    top: int = option("candidates to list (default %(default)s)", default=1, parse=at_least(1))
    exact: bool = option(EXACT, default=False)


def verify(arguments: Verify) -> int:
    """Run `veil faces verify`. Returns the exit code: 0 accepted, 3 any kind of no."""
    person, purpose = checked_name(arguments.person, "person"), checked_name(arguments.purpose, "purpose")
    store, client = opened_store(arguments)
    if store.threshold is None:
        raise InputError(f"{store.path} has no threshold; fit one with: veil faces calibrate")
    limit = store.threshold.distance
    record: dict[str, object] = {"accepted": False, "reason": None, "band": None, "score": None, "threshold": limit}
    record["again"] = None
    _, templates = store.templates(purpose, person)
    if templates is None:
        return _no(arguments, record, "no template", f"{person!r} has no valid template for {purpose!r}")
    try:
        vector = face_vector(arguments, store.scheme)
    except NoFace as error:
        return _no(arguments, record, "no face", str(error))
    try:
        store.charge_attempt(person)
    except AttemptsSpent as refusal:
        return _no(arguments, record | {"again": utc(refusal.again_at_s)}, "limit", advised(refusal))
    score = float(scores(client.probe(vector, purpose=purpose, person=person, template=templates), templates)[0])
    band = band_of(score, limit)
    comparison = str(band)
    if arguments.exact:
        record["score"], comparison = score, f"{comparison}, distance {score:.3f}, threshold {limit:.3f}"
    if arguments.exact or not score <= limit:
        record["band"] = band
    if not score <= limit:
        return _no(arguments, record, "distance", comparison)
    store.give_back_attempt(person)
    write_json(arguments.json, {**record, "accepted": True}, private=True)
    say(arguments, f"accepted{f': {comparison}' if arguments.exact else ''}")
    return 0


def identify(arguments: Identify) -> int:
    """Run `veil faces identify`. Returns the exit code: 0 somebody is accepted, 3 any kind of no."""
    from veil import distances

    purpose = checked_name(arguments.purpose, "purpose")
    store, client = opened_store(arguments)
    if store.scheme.comparison == "parallel":
        raise InputError(f"{store.path} compares along one template's directions; to identify, create a store --by p2s")
    if store.open_set is None:
        raise InputError(f"{store.path} has no thresholds to identify by; fit them with: veil faces calibrate")
    people, templates = store.templates(purpose)
    record: dict[str, object] = {"accepted": False, "reason": None, "candidates": [], "templates": len(people)}
    record |= {"threshold": None, "gallery": None, "again": None}
    if templates is None:
        return _no(arguments, record, "no template", f"nobody has a valid template for {purpose!r}")
    size = store.open_set.at(len(people))
    record |= {"threshold": size.threshold, "gallery": {"fpir_asked": store.open_set.asked, **size.as_json()}}
    try:
        vector = face_vector(arguments, store.scheme)
    except NoFace as error:
        return _no(arguments, record, "no face", str(error))
    try:
        store.charge_attempt(None)
    except AttemptsSpent as refusal:
        return _no(arguments, record | {"again": utc(refusal.again_at_s)}, "limit", advised(refusal))
    probe = client.probe(vector, purpose=purpose)
    nearest = distances.nearest(probe, (templates.origin, templates.basis), min(arguments.top, len(people)))
    best = [
        {
            "person": people[row],
            "band": band_of(float(score), size.threshold),
            "score": float(score) if arguments.exact else None,
            "accepted": bool(score <= size.threshold),
        }
        for row, score in zip(nearest.index[0].tolist(), nearest.distance[0].tolist(), strict=True)
    ]
    accepted = any(item["accepted"] for item in best)
    if accepted:
        store.give_back_attempt(None)
        if not arguments.exact:
            best = [item | {"band": None} for item in best if item["accepted"]]
    write_json(
        arguments.json,
        {**record, "accepted": accepted, "reason": None if accepted else "distance", "candidates": best},
        private=True,
    )
    say(
        arguments,
        f"{len(people)} templates: threshold {size.threshold:.3f}, FPIR {size.fpir:.2%} ({size.fpir_low:.2%} to "
        f"{size.fpir_high:.2%}) by {store.open_set.people} strangers, {store.open_set.asked:.2%} asked",
    )
    for item in best:
        distance = f"{item['score']:.3f} " if arguments.exact else ""
        band = f" ({item['band']})" if item["band"] else ""
        say(arguments, f"{distance}{'accepted' if item['accepted'] else 'rejected'}{band} {item['person']}")
    return 0 if accepted else EXIT_NO


def _no(arguments: AskedFace, record: dict[str, object], reason: str, why: str) -> int:
    """Write and print that nobody was accepted, and why; returns the exit code."""
    write_json(arguments.json, {**record, "reason": reason}, private=True)
    say(arguments, f"rejected: {why}")
    return EXIT_NO


def face_vector(arguments: AskedFace, scheme: TemplateScheme) -> np.ndarray:
    """The unit-length descriptor of the one face of a photograph or of a file of descriptors, float32 (dim,).

    Raises NoFace where the photograph shows no usable face, or several.
    """
    path, name = arguments.face, arguments.face_name
    if not holds_faces(path):
        from veil_faces.extraction.face_finder import SECOND_TRY, FoundFace
        from veil_faces.extraction.faces import describe_face

        def tell(face: FoundFace) -> None:
            if face.found_by == SECOND_TRY:
                say(arguments, f"{path}: no face at the first try; found by dlib's {face}: look whether it is one")

        network = chosen_network(arguments, needed=scheme.space)
        return describe_face(read_rgb(path), network, only=True, least_px=LEAST_PX, on_found=tell)
    if arguments.model is not None:
        raise InputError(f"--model describes photographs; {path} holds descriptors already")
    faces = read_faces(path)
    if faces.space != scheme.space:
        raise InputError(f"{path} holds [{faces.space}], the store [{scheme.space}]; describe both with one network")
    if name is None and len(faces) > 1:
        raise InputError(f"{path} holds {len(faces)} faces; say which with --face-name")
    if name is not None and name not in faces.names:
        raise InputError(f"{path} has no face {name!r}; the first is {faces.names[0]!r}")
    row: np.ndarray = faces.vectors[faces.names.index(name) if name is not None else 0]
    return row
