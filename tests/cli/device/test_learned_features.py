"""Learned features of other tools, from the file that a tool writes to a pose: four kinds of hloc's, and COLMAP's own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import h5py
import numpy as np
import pytest

from veil.cli import main
from veil.features import Features
from worlds import generator, unit
from worlds.edges import colmap_database

# hloc writes half precision unless it is told not to.
KINDS = [("superpoint", 256, np.float16), ("disk", 128, np.float16), ("aliked-n16", 128, np.float32), ("xfeat", 64, np.float16)]


def run(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


def network(door: Mapping[str, Features], dim: int) -> dict[str, np.ndarray]:
    """Signed descriptors of `dim` numbers as near to each other as SIFT is: centered, turned, cut or filled up."""
    turn = np.linalg.qr(generator("turn").normal(size=(max(dim, 128), max(dim, 128))))[0][:128, :dim]
    return {name: unit((unit(item.descriptors) - 0.06) @ turn).astype(np.float32) for name, item in door.items()}


def hloc(path: Path, door: Mapping[str, Features], descriptors: Mapping[str, np.ndarray], precision: type) -> Path:
    """A file as hloc writes it, by h5py alone."""
    with h5py.File(path, "w") as file:
        for name, values in descriptors.items():
            group = file.create_group(name)
            group["keypoints"] = (door[name].keypoints - 0.5).astype(precision)
            group["descriptors"] = values.T.astype(precision)
            group["scores"] = np.linspace(1, 0, len(values)).astype(precision)
            group["image_size"] = np.array([door[name].camera.width_px, door[name].camera.height_px])
    return path


def strangers(path: Path, dim: int, precision: type) -> Path:
    """Features of other photographs, for decoys and words."""
    random = generator("strangers")
    values = unit(random.normal(size=(4000, dim)))
    with h5py.File(path, "w") as file:
        for index, part in enumerate(np.split(values, 4)):
            group = file.create_group(f"{index}.jpg")
            group["keypoints"] = random.uniform(0, 400, (len(part), 2)).astype(precision)
            group["descriptors"], group["image_size"] = part.T.astype(precision), np.array([480, 480])
    return path


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "dim", "precision"), KINDS, ids=[kind for kind, _, _ in KINDS])
def test_features_of_hloc_are_released_mapped_and_localized(
    door: dict[str, Features], tmp_path: Path, kind: str, dim: int, precision: type
) -> None:
    """Planted truth: a photograph of the place is localized on maps of the others, of both kinds."""
    descriptors = network(door, dim)
    query, *mapped = [sorted(descriptors)[place] for place in (2, 0, 1, 3)]
    for place, names in (("query", [query]), ("mapped", mapped)):
        hloc(tmp_path / f"{place}.theirs.h5", door, {name: descriptors[name] for name in names}, precision)
    strangers(tmp_path / "pool.theirs.h5", dim, precision)
    for place in ("query", "mapped", "pool"):
        assert run("extract", tmp_path / f"{place}.theirs.h5", "-o", tmp_path / f"{place}.h5", "--imported", kind) == 0
    assert (
        run("codebook", "build", "--decoy-pool", tmp_path / "pool.h5", "-o", tmp_path / "pool.npz", "--word-count", 4000) == 0
    )
    assert run("codebook", "build", tmp_path / "pool.h5", "-o", tmp_path / "book.npz", "--word-count", 256) == 0
    protect = ["--decoys", tmp_path / "pool.npz", "--features", 250, "--min-distance", 0]
    for place in ("query", "mapped"):
        assert run("privatize", tmp_path / f"{place}.h5", "-o", tmp_path / place, "--for", "map", *protect) == 0
    words = ["--words", tmp_path / "book.npz", "--epsilon", 12, "--allow-second-release"]
    assert run("privatize", tmp_path / "query.h5", "-o", tmp_path / "words", *words) == 0
    assert run("map", tmp_path / "mapped.h5", "-o", tmp_path / "public") == 0
    assert run("map", tmp_path / "mapped", "-o", tmp_path / "private") == 0
    for which in ("public", "private"):
        pose = tmp_path / f"{which}.json"
        assert run("localize", tmp_path / which, *(tmp_path / "query").glob("*.veil"), "--json", pose) == 0
        assert json.loads(pose.read_text())["queries"][0]["inliers"] > 30
    assert run("inspect", *(tmp_path / "query").glob("*.veil"), "--json", tmp_path / "inspected.json") == 0
    assert f"{kind} L2 {dim}-D" in (tmp_path / "inspected.json").read_text()
    assert run("inspect", *(tmp_path / "words").glob("*.veil")) == 0
    if kind == "disk":  # compressed by the book's PCA, and compared with the raw map through it
        book = ["--codebook", tmp_path / "book.npz"]
        assert (
            run(
                "privatize",
                tmp_path / "query.h5",
                "-o",
                tmp_path / "short",
                "--for",
                "map",
                *protect,
                *book,
                "--allow-second-release",
            )
            == 0
        )
        (short,), (long,) = ((tmp_path / place).glob("*.veil") for place in ("short", "query"))
        assert short.stat().st_size < long.stat().st_size
        assert run("localize", tmp_path / "public", short, *book) == 0


@pytest.mark.slow
def test_a_database_of_colmap_4_goes_in(door: dict[str, Features], tmp_path: Path, capsys) -> None:
    """ALIKED's rows are float32 in bytes; the kind stands in the database, and --normalization need not be said."""
    tables = {name: (door[name].keypoints, values) for name, values in network(door, 128).items()}
    path = colmap_database(tmp_path / "c.db", tables, kind="ALIKED_N16ROT")
    # The helper's camera is of another size, so the keypoints do not fit: that is said.
    assert run("extract", path, "-o", tmp_path / "f.h5") == 1
    assert "lie outside the image of 640x480" in capsys.readouterr().err
    # Two fifths of the size, about the center of the helper's camera, whose focal length is then right.
    shift = np.array([320 - 0.4 * 343, 240 - 0.4 * 512], dtype=np.float32)
    inside = {name: (xy * np.float32(0.4) + shift, values) for name, (xy, values) in tables.items()}
    path = colmap_database(tmp_path / "d.db", inside, kind="ALIKED_N16ROT")
    assert run("extract", path, "-o", tmp_path / "f.h5", "--json", tmp_path / "f.json") == 0
    record = json.loads((tmp_path / "f.json").read_text())
    assert {row["space"] for row in record["images"]} == {"aliked-n16rot L2 128-D"} and len(record["images"]) == len(tables)
    capsys.readouterr()
    assert (
        run("privatize", tmp_path / "f.h5", "-o", tmp_path / "up", "--for", "map") == 0
    )  # by the bundled codebook and pool of ALIKED
    assert "the bundled decoy pool is public" in capsys.readouterr().out
    assert run("map", tmp_path / "f.h5", "-o", tmp_path / "public") == 0
    names = sorted(tables)
    (query, *_) = sorted((tmp_path / "up").glob("*.veil"))
    assert run("localize", tmp_path / "public", query) == 0, names


@pytest.mark.parametrize(
    ("said", "words"),
    [("mynet", "say NAME:DIM"), ("superpoint:128", "superpoint has 256 dimensions"), ("xfeat:256", "xfeat has 64")],
)
def test_kinds_that_are_unknown_or_of_another_length(tmp_path: Path, said: str, words: str, capsys) -> None:
    assert run("extract", strangers(tmp_path / "x.h5", 64, np.float32), "-o", tmp_path / "f.h5", "--imported", said) == 1
    assert words in capsys.readouterr().err
