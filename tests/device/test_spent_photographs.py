"""A device uses each decoy photograph once, repeats releases with their own, and says what to bring when few are left."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import veil
from veil.device.device import releasing
from veil.distances import pairwise
from veil.errors import InputError, ReleaseRefused
from veil.features import Features
from veil.files.device.ledger import Entry
from veil.forms import Subspaces
from worlds import generator, unit
from worlds.decoy_photographs import photograph, photographs

SELECTION = veil.Selection(features=60, min_distance_px=0.0)


def protection(given: tuple[Features, ...]) -> veil.Protection:
    decoys = veil.DecoyPhotographs(photographs=given)
    return veil.Protection(descriptors=veil.HideInSubspaces(decoys=decoys, selection=SELECTION))


def form(made: veil.DeviceRelease) -> Subspaces:
    released = veil.decode(made.message).form
    assert isinstance(released, Subspaces)
    return released


def meetings(one: veil.DeviceRelease, other: veil.DeviceRelease) -> int:
    """Number of subspaces of one message that meet one of the other as nearly as in a shared decoy."""
    left, right = form(one), form(other)
    distance = pairwise((left.origin, left.basis), (right.origin, right.basis))
    return int((distance.min(axis=1) <= left.space.decoy_distance).sum())


def test_each_photograph_serves_one_release(tmp_path: Path) -> None:
    """Two images have no decoy in common. Broken twin: two devices of one client, with a ledger each, share photographs."""
    given, images = photographs(16), [photograph(f"own {number}") for number in range(2)]
    device = veil.Device(tmp_path / "home")
    made = [device.release(image, protection(given), purpose="map") for image in images]
    assert meetings(*made) < 6
    entries = [entry for entry in device.ledger.entries()]
    assert len(entries) == 2 and "photographs" not in entries[0].parameters
    apart = [
        veil.Device(tmp_path / name).release(image, protection(given[:8]), purpose="map")
        for name, image in zip("ab", images, strict=True)
    ]
    assert meetings(*apart) > 50


def test_a_release_is_repeated_with_its_own_photographs(tmp_path: Path) -> None:
    """The same bytes leave whatever order and number of photographs is given, and none is used up by it."""
    given = photographs(16)
    device = veil.Device(tmp_path / "home")
    image = photograph("own")
    first = device.release(image, protection(given), purpose="map")
    again = device.release(image, protection((*given[::-1], *photographs(20)[16:])))
    assert again.message == first.message
    device.release(photograph("other"), protection(given), purpose="map")
    assert device.release(image, protection(given), purpose="map").message == first.message
    left = [item for item in given if item.image_digest not in _used(device, image)]
    with pytest.raises(InputError, match="8 photographs, of which 8 are not given"):
        device.release(image, protection(tuple(left)), purpose="map")


def _used(device: veil.Device, image: Features) -> set[bytes]:
    from veil.files.device.ledger import connected
    from veil.files.device.spent import spent_on

    with connected(device.ledger.path, mode="ro") as connection:
        return {bytes.fromhex(digest) for digest in spent_on(connection, image.image_digest.hex())}


def test_when_photographs_run_out_the_error_says_how_many_are_needed(tmp_path: Path) -> None:
    device, given = veil.Device(tmp_path / "home"), photographs(11)
    device.release(photograph("own"), protection(given), purpose="map")
    with pytest.raises(
        InputError, match=r"needs 8 decoy photographs that no release used.*of 3 unused ones 3 are so"
    ) as refused:
        device.release(photograph("next"), protection(given), purpose="map")
    assert refused.value.facts["needed"] == 8 and refused.value.facts["unused"] == 3
    assert len(device.ledger.entries()) == 1


def test_photographs_of_one_call_are_counted(tmp_path: Path) -> None:
    device, given = veil.Device(tmp_path / "home"), photographs(16)
    with releasing(device, purpose="map") as make:
        made = [make(photograph(f"own {number}"), protection(given), "") for number in range(2)]
    assert meetings(*made) < 6
    with pytest.raises(InputError, match="of 0 unused"):
        device.release(photograph("third"), protection(given), purpose="map")


def test_what_was_released_gives_no_decoys_and_what_gave_decoys_is_not_released(tmp_path: Path) -> None:
    """Either way two messages would meet in descriptors of the photograph, unless its owner accepts that."""
    device, own = veil.Device(tmp_path / "home"), photograph("own")
    device.release(own, veil.Protection(descriptors=veil.HideInWords(epsilon=5.0)))
    with pytest.raises(InputError, match="of 3 unused ones 3 are so"):
        device.release(photograph("next"), protection((*photographs(3), own)))
    device.release(photograph("next"), protection(photographs(8)), purpose="map")
    decoy = photographs(1)[0]
    with pytest.raises(ReleaseRefused, match="gave the decoys of an earlier release"):
        device.release(decoy, veil.Protection(descriptors=veil.HideInWords(epsilon=5.0)))
    device.release(decoy, veil.Protection(descriptors=veil.HideInWords(epsilon=5.0)), allow_second=True)


def test_two_processes_do_not_use_one_photograph(tmp_path: Path) -> None:
    """The transaction that enters a release looks again: a photograph that another process used meanwhile is refused."""
    device = veil.Device(tmp_path / "home")
    spent = tuple(f"{number:064x}" for number in range(4))
    entry = Entry(
        image_digest="aa" * 32, released_as="01", name="a", parameters="p", features=7, message_digest="bb" * 32, fresh=False,
        decoy_photographs=spent,
    )  # fmt: skip
    assert device.ledger.record(entry) and not device.ledger.record(entry)
    other = replace(entry, image_digest="cc" * 32, message_digest="dd" * 32, decoy_photographs=(spent[3],))
    with pytest.raises(ReleaseRefused, match="1 decoy photographs of a were released, or used"):
        device.ledger.record(other)


def test_a_fresh_draw_takes_other_photographs(tmp_path: Path) -> None:
    device, given, image = veil.Device(tmp_path / "home"), photographs(16), photograph("own")
    device.release(image, protection(given), purpose="map")
    own = _used(device, image)
    device.release(image, protection(given), fresh=True, allow_second=True, purpose="map")
    assert _used(device, image) == own
    with pytest.raises(InputError, match="of 0 unused"):
        device.release(photograph("next"), protection(given), purpose="map")


def test_near_repeats_leave_with_their_earlier_draws(tmp_path: Path) -> None:
    """A frame that shows again what left before has equal subspaces there, though its photographs would be others."""
    device, given, first = veil.Device(tmp_path / "home"), photographs(16), photograph("video")
    moved = np.maximum(unit(first.descriptors) + 0.05 * unit(generator("noise").normal(size=(120, 128))), 0)
    second = replace(
        first, descriptors=np.clip(np.round(512 * unit(moved)), 0, 255).astype(np.uint8), image_digest=b"second".ljust(32, b".")
    )
    made = [device.release(image, protection(given), purpose="localize") for image in (first, second)]
    assert made[1].shown_before > 50
    rows = [{row.tobytes() for row in form(one).origin} for one in made]
    assert len(rows[0] & rows[1]) == made[1].shown_before
