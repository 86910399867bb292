"""Scenarios of devices and commands that are killed at each write, without a server.

| scenario | writers |
| --- | --- |
| device | secret, ledger, outbox, tiles and hints that a device keeps |
| folder | `veil map` and `veil map remove`: a map in its folder, replaced in place, and the matches beside it |
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from veil.device.device import Device
from veil.device.protection import HideInSubspaces, HideInWords, Protection
from veil.errors import InputError
from veil.features import Features
from veil.files import atomic
from veil.files.device.outbox import Outbox, Sending
from veil.files.maps.folders import settle_folder, write_models
from veil.files.maps.format import read_map
from veil.files.tiles import FolderCache
from veil.mechanisms.profile import Profile
from veil.mechanisms.release import HideInLines
from veil.places.removal import remove_from_map
from worlds import generator, world
from worlds.kill_checks import needles
from worlds.kill_servers import Place, Server
from worlds.line_worlds import features_of
from worlds.planted_bytes import held_in, places_of, windows

FORMS = ("positions", "lines", "words")
# Images and points of the planted place of each form: as few as make a map and let it grow.
PLACES = {"positions": (4, 120), "lines": (5, 250), "words": (4, 300)}
DOWN = np.array([0.0, 1.0, 0.0])
VERSION, HINT = "a" * 64, "b" * 64


def photographs(form: str) -> list[tuple[Features, Protection]]:
    """Features of a planted place, and how they are protected in a form."""
    images, points = PLACES[form]
    place, released = world("kills", images=images, points=points), []
    for name, features in features_of(place, "kills").items():
        # Equal descriptors would have equal draws, and messages equal bytes.
        noise = generator(f"kills {name}").integers(-2, 3, features.descriptors.shape)
        noisy = np.clip(features.descriptors.astype(int) + noise, 0, 255).astype(np.uint8)
        features = replace(features, descriptors=noisy)
        subspaces = HideInSubspaces(profile=Profile.paper(2))
        down = place.poses[name].rotation @ DOWN
        protections = {
            "positions": Protection(descriptors=subspaces),
            "lines": Protection(descriptors=subspaces, lines=HideInLines(gravity=down)),
            "words": Protection(descriptors=HideInWords(epsilon=18.0)),
        }
        released.append((features, protections[form]))
    return released


def messages_of(form: str, home: Path) -> tuple[bytes, ...]:
    """Messages of a planted place in one form."""
    device = Device(home)
    return tuple(device.release(features, protection).message for features, protection in photographs(form))


@dataclass(frozen=True, kw_only=True)
class Client:
    """A scenario without a server; `act` notes what was done with `acknowledge`, `finish` tells what is wrong."""

    name: str
    prepare: Callable[[Place], dict[str, list[str]]]
    act: Callable[[Place], None]
    finish: Callable[[Place, str], list[str]]


def acknowledge(place: Place, step: str) -> None:
    """Note that a step was done."""
    with place.acks.open("a") as stream:
        stream.write(json.dumps({"step": step}) + "\n")


def done(place: Place) -> set[str]:
    """The steps that were done."""
    return {json.loads(line)["step"] for line in place.acks.read_text().splitlines()}


def aged(place: Place) -> None:
    """Have all files be an hour and a minute old, and what comes now be of another process."""
    atomic._cleared.clear()
    then = time.time() - 3660
    for path in place.root.rglob("*"):
        os.utime(path, (then, then), follow_symlinks=False)


def parts_left(place: Place) -> list[str]:
    """Half-written files that are left."""
    return [f"left: {path.relative_to(place.root)}" for path in place.root.rglob(".*.part*")]


def nothing(place: Place) -> dict[str, list[str]]:
    return {}


# A device: it releases two photographs, sends one, and has the other one refused.


def _sending(number: int, message: bytes) -> Sending:
    digest = hashlib.sha256(message).hexdigest()
    return Sending(server="https://a", map_id="m1", name=f"{number}.jpg", message_sha256=digest)


def _device(place: Place) -> None:
    device = Device(place.root / "home")
    released = []
    for number, (features, protection) in enumerate(photographs(place.form)[:2]):
        released.append(device.release(features, protection, name=f"{number}.jpg").message)
        place.beside(f"message-{number}").write_bytes(released[-1])
        acknowledge(place, f"release {number}")
    box = Outbox(place.root / "home")
    for number, message in enumerate(released):
        box.put(_sending(number, message), message)
        acknowledge(place, f"put {number}")
    box.acknowledge(_sending(0, released[0]))
    acknowledge(place, "sent 0")
    box.drop(_sending(1, released[1]))
    acknowledge(place, "dropped 1")
    cache = FolderCache(folder=place.root / "device-tiles")
    cache.put(VERSION, 3, released[0][:500])
    cache.put_hint(HINT, released[1][:500])
    acknowledge(place, "kept")


def _device_after(place: Place, ending: str) -> list[str]:
    before, faults = done(place), []
    known = {number: place.beside(f"message-{number}").read_bytes() for number in range(2) if f"release {number}" in before}
    if ending == "an hour later":
        aged(place)
    box = Outbox(place.root / "home")
    waiting = {sending.name: message for sending, message in box.waiting()}
    sent = {sending.name for sending in box.sent()}
    for number, message in known.items():
        # The second one is dropped when the first one was sent.
        gone = f"{number}.jpg" in sent or (number == 1 and "sent 0" in before)
        if f"put {number}" in before and not gone and waiting.get(f"{number}.jpg") != message:
            faults.append(f"lost: message {number} waited")
    if ending == "an hour later":
        held = list(held_in(place.root, None))
        for number, message in known.items():
            if f"{number}.jpg" not in waiting and "kept" not in before:
                outside = [item for item in held if not item[0].startswith("device-tiles")]
                faults += [f"left: a message that does not wait in {path}" for path in places_of(windows(message), outside)]
        faults += [told for told in parts_left(place) if "client" in told]
    place.acks.write_text("")
    _device(place)
    for number, message in known.items():
        if place.beside(f"message-{number}").read_bytes() != message:
            faults.append(f"twice: message {number} is another one when it is made again")
    entries = [entry.message_digest for entry in Device(place.root / "home").ledger.entries()]
    if len(entries) != 2 or len(set(entries)) != 2:
        faults.append(f"twice: the ledger holds {len(entries)} releases of two photographs")
    if [item.name for item in Outbox(place.root / "home").sent()] != ["0.jpg"] or list(Outbox(place.root / "home").waiting()):
        faults.append("wrong: the outbox holds something else than one note")
    shutil.rmtree(place.root / "device-tiles")
    aged(place)
    Outbox(place.root / "home")
    Device(place.root / "home")
    for number in range(2):
        planted = windows(place.beside(f"message-{number}").read_bytes())
        faults += [f"left: bytes of a message in {path}" for path in places_of(planted, held_in(place.root, None))]
    return faults + parts_left(place)


# A map in its folder.


def _folder_before(place: Place) -> dict[str, list[str]]:
    server = Server(place)
    last = len(place.messages) - 1
    server.run(["open", *(f"contribute {number}" for number in range(last + 1)), "work"])
    windows = needles(server)
    folder = server.service.version_folder(server.service.map_record(server.map))
    assert folder is not None
    shutil.copytree(folder, place.root / "map")
    shutil.copytree(server.service.folder / "matches" / server.map, place.root / "map-matches")
    gone = next(iter(read_map(place.root / "map").images))
    server.service.close()
    shutil.rmtree(place.root / "store")
    return {gone: [part.hex() for part in [*windows[gone], gone.encode()]]}


def _folder(place: Place) -> None:
    gone = next(iter(json.loads(place.beside("planted").read_text())))
    remove_from_map(place.root / "map", [gone], matches=place.root / "map-matches")
    acknowledge(place, "removed")
    write_models(place.root / "map-again", [read_map(place.root / "map")])
    acknowledge(place, "written")


def _folder_after(place: Place, ending: str) -> list[str]:
    ((gone, parts),) = json.loads(place.beside("planted").read_text()).items()
    if ending == "an hour later":
        aged(place)
    before = done(place)
    if "removed" not in before:
        with suppress(InputError):  # it had been removed
            remove_from_map(place.root / "map", [gone], matches=place.root / "map-matches")
    settle_folder(place.root / "map")
    faults = [] if gone not in read_map(place.root / "map").images else ["left: it is still in the map"]
    planted = [bytes.fromhex(part) for part in parts]
    faults += [f"left: bytes of a removed image in {path}" for path in places_of(planted, held_in(place.root, None))]
    if "written" in before and not (place.root / "map-again").is_dir():
        faults.append("lost: a written map")
    settle_folder(place.root / "map-again")
    if not (place.root / "map-again").is_dir():
        write_models(place.root / "map-again", [read_map(place.root / "map")])
    read_map(place.root / "map-again")
    left = [path.name for path in place.root.iterdir() if path.name not in ("map", "map-matches", "map-again")]
    return faults + [f"left: {name}" for name in left]


CLIENTS = (
    Client(name="device", prepare=nothing, act=_device, finish=_device_after),
    Client(name="folder", prepare=_folder_before, act=_folder, finish=_folder_after),
)
