"""A face store and the client's record of it, in a scenario that is killed at each write: made, enrolled, renewed, revoked."""

from __future__ import annotations

from contextlib import suppress

from face_worlds.face_templates import SCHEME, home_of, template
from veil.errors import InputError
from veil_faces.files.face_store import FaceStore
from worlds.kill_clients import Client, acknowledge, aged, done, nothing, parts_left
from worlds.kill_servers import Place
from worlds.planted_bytes import held_in, places_of

_PEOPLE = (("alice", 1, False), ("bob", 1, False), ("alice", 2, True))


def _faces(place: Place) -> None:
    path = place.root / "faces" / "door.store"
    path.parent.mkdir(exist_ok=True)
    store = FaceStore(path, home_of(path)) if path.exists() else FaceStore.create(path, SCHEME, home_of(path))
    acknowledge(place, "create")
    for person, version, renew in _PEOPLE:
        step = f"enroll {person} {version}"
        if (person, version) not in {(line.person, line.version) for line in store.enrolled()}:
            store.enroll(person, "door", version, template(f"{person} {version}"), renew=renew)
        acknowledge(place, step)
    with suppress(InputError):  # it was revoked before
        store.revoke("bob", "door")
    acknowledge(place, "revoke bob")


def _faces_after(place: Place, ending: str) -> list[str]:
    path, faults = place.root / "faces" / "door.store", []
    if ending == "an hour later":
        aged(place)
    if path.exists():
        lines = {f"enroll {line.person} {line.version}" for line in FaceStore(path, home_of(path)).enrolled()}
        faults += [f"lost: {step}" for step in done(place) - lines if step.startswith("enroll")]
    elif "create" in done(place):
        faults.append("lost: the store")
    _faces(place)
    store = FaceStore(path, home_of(path))
    if sorted((line.person, line.version, line.revoked_at is None) for line in store.enrolled()) != [
        ("alice", 1, False),
        ("alice", 2, True),
        ("bob", 1, False),
    ]:
        faults.append("wrong: the store holds other templates")
    for person, version in (("alice", 1), ("bob", 1)):
        form = template(f"{person} {version}")
        planted = [part.tobytes()[:32] for part in (form.origin, form.basis)]
        faults += [f"left: an erased template in {name}" for name in places_of(planted, held_in(place.root, None))]
    aged(place)
    FaceStore.create(place.root / "faces" / "another.store", SCHEME, home_of(path))
    return faults + parts_left(place)


FACES = Client(name="faces", prepare=nothing, act=_faces, finish=_faces_after)
