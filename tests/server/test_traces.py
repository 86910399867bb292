"""The search for what was deleted: it finds every row of a map under any key, packed or not, and one that was left."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import h5py
import numpy as np
import pytest

from veil.device.device import Device
from veil.features import Features
from veil.files.maps.format import read_map, write_map
from veil.forms import Subspaces
from veil.scene import Scene
from veil.wire import decode
from worlds.map_scenes import planted_map
from worlds.servers import everything, messages_of
from worlds.traces import WIDTH, Traces, held_in, traces_of

KEYS = 10


@dataclass(frozen=True)
class Planted:
    """A map of messages under a key: its folder, the image that goes, its message, and the scene without it."""

    folder: Path
    gone: str
    message: bytes
    rest: Scene

    @property
    def traces(self) -> Traces:
        return traces_of(self.folder / "map", self.gone, self.message)


@pytest.fixture(scope="module", params=range(KEYS))
def planted(
    request: pytest.FixtureRequest, door: dict[str, Features], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Planted]:
    """A store of one map and one message; each number draws another secret."""
    folder = tmp_path_factory.mktemp(f"key{request.param}-")
    messages = list(messages_of(door, Device(folder / "device"), most=80).values())
    scene, _ = planted_map("search", "subspaces", points=60)
    images = {
        name: replace(image, form=decode(message).form.take(np.arange(len(image.keypoints))))
        for (name, image), message in zip(scene.images.items(), messages, strict=True)
    }
    store = folder / "store"
    write_map(store / "map", replace(scene, images=images))
    (store / "blob").write_bytes(messages[0])
    gone = next(iter(images))
    yield Planted(store, gone, messages[0], replace(scene, images={name: images[name] for name in images if name != gone}))


@pytest.mark.slow
@pytest.mark.planted
def test_every_row_is_found_under_each_key_and_none_without_the_image(planted: Planted, tmp_path: Path) -> None:
    """Oracle: the count of rows. Twins: one row left in a file or packed, or a window of the message, is reported."""
    traces = planted.traces
    assert traces.missed(everything(planted.folder)) == {}
    assert {"stored origin", "stored basis", "message", "name"} <= traces.stored
    assert min(len(traces.prints[what]) for what in ("stored origin", "stored basis")) >= 30
    write_map(tmp_path / "map", planted.rest)
    assert traces.counts(everything(tmp_path)) == {}
    for what in sorted(traces.stored):
        row = traces.prints[what][len(traces.prints[what]) // 2]
        (tmp_path / "left").write_bytes(b"odd" + row + b"and more")
        assert what in traces.counts(everything(tmp_path)), "left in a file"
        (tmp_path / "left").unlink()
        with h5py.File(tmp_path / "left.h5", "w") as file:
            file.create_dataset("row", data=np.frombuffer(row * 99, dtype=np.uint8), compression="gzip")
        assert what in traces.counts(everything(tmp_path)), "left in a file that packs it"
        (tmp_path / "left.h5").unlink()
        np.savez_compressed(tmp_path / "left.npz", row=np.frombuffer(row * 99, dtype=np.uint8))
        assert what in traces.counts(everything(tmp_path)), "left in an archive"
        (tmp_path / "left.npz").unlink()


@pytest.mark.slow
def test_what_read_map_returns_is_not_what_a_map_stores(planted: Planted) -> None:
    """Broken twin: rows of the canonical form that `read_map` returns are missed, under each key, as last digits differ."""
    form = read_map(planted.folder / "map").images[planted.gone].form
    assert isinstance(form, Subspaces)
    rows = {row.tobytes()[:WIDTH] for row in form.origin}
    present = set[bytes]().union(*(held_in(data, rows) for _, data in everything(planted.folder)))
    assert len(present) < len(rows)


def test_the_search_is_that_of_bytes_in() -> None:
    """Second method: Python's own search, for parts at all places, at both ends, overlapping, and such as are not there."""
    random = np.random.default_rng(0)
    data = random.integers(0, 256, 5000, dtype=np.uint8).tobytes() + bytes(100)
    parts = {data[place : place + size] for place in range(0, 300, 7) for size in (8, 13, 24)}
    parts |= {data[-8:], data[-30:], data[3000:3100], b"nowhere " + data[:9], data[10:20] + b"x", bytes(9), bytes(101)}
    for length in (0, 5, 7, 8, 9, 200, len(data)):
        assert held_in(data[:length], parts) == {part for part in parts if part in data[:length]}
