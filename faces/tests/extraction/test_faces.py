"""dlib's face descriptor: missing packages are named, and a photograph without a usable face is refused."""

from __future__ import annotations

import csv
import importlib.util
import math
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from veil.errors import InputError, NoFace
from veil.features import unit_length
from veil.files.photographs.pictures import read_rgb
from veil_faces.collection import as_features
from veil_faces.extraction.face_finder import FIRST_TRY, SECOND_TRY, FaceFinder
from veil_faces.extraction.faces import FACE_SPACE, DlibNetwork, describe_face, describe_faces, load_face_network
from worlds import generator


def needs_faces() -> None:
    pytest.importorskip("dlib", reason="face descriptors need the extra veil-faces[networks]")
    if importlib.util.find_spec("face_recognition_models") is None:
        pytest.skip("face descriptors need the extra veil-faces[networks]")


@pytest.mark.parametrize("missing", ["dlib", "face_recognition_models"])
def test_what_is_missing_is_named_with_what_to_install(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if missing == "dlib":
        monkeypatch.setitem(sys.modules, "dlib", None)
    else:
        monkeypatch.setitem(sys.modules, "dlib", object())
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"pip install 'veil-faces\[networks\]'"):
        load_face_network()


def test_a_package_without_its_networks_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "dlib", object())
    empty = tmp_path / "face_recognition_models"
    empty.mkdir()
    (empty / "__init__.py").write_text("raise RuntimeError('this package must not be imported')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(InputError, match="face-recognition-models"):
        load_face_network()


def test_faces_are_features_of_their_own_space() -> None:
    vectors = unit_length(generator("faces").normal(size=(3, 128))).astype(np.float32)
    features = as_features(vectors, FACE_SPACE)
    assert features.space == FACE_SPACE and features.space.normalization == "L2" and not features.is_quantized
    again, other = (as_features(each, FACE_SPACE).image_digest for each in (vectors, vectors[::-1].copy()))
    assert again == features.image_digest != other
    with pytest.raises(InputError, match="unit length"):
        as_features(1.4 * vectors, FACE_SPACE)  # as dlib gives them


def test_where_there_is_no_face_nothing_is_claimed() -> None:
    needs_faces()
    noise = generator("no face").integers(0, 255, (150, 150, 3)).astype(np.uint8)
    network = load_face_network()
    with pytest.raises(InputError, match="no face was found"):
        describe_face(noise, network)
    vectors, refused = describe_faces([noise, noise], network)
    assert vectors.shape == (0, 128) and set(refused) == {0, 1} and "no face" in refused[1]


class Rectangle:
    """A face as dlib's detector gives it."""

    def __init__(self, size: int) -> None:
        self.width = self.height = lambda: size


def stub(*sizes: int, factor: float = 1) -> DlibNetwork:
    """dlib's parts, for a detector that finds faces of these sizes; a face's descriptor is its width times `factor`."""
    dlib = SimpleNamespace(get_face_chip=lambda pixels, shape, size, padding: shape)
    encoder = SimpleNamespace(compute_face_descriptor=lambda chip: np.full(128, factor * chip.width()))
    finder = FaceFinder(detector=lambda pixels, times: [Rectangle(size) for size in sizes], predictor=lambda pixels, face: face)
    return DlibNetwork(finder=finder, dlib=dlib, encoder=encoder)


def test_quality_is_refused_with_a_reason() -> None:
    """Oracle: a stub of the detector. Two faces, or a small one, are refused only where that is asked for."""
    picture = np.zeros((90, 90, 3), dtype=np.uint8)
    for network, match in ((stub(), "no face"), (stub(60, 70), "2 faces"), (stub(79), "79 px wide, 80")):
        with pytest.raises(InputError, match=match):
            describe_face(picture, network, only=True, least_px=80)
    vector = describe_face(picture, stub(60, 70))
    assert vector == pytest.approx(np.full(128, 1 / np.sqrt(128)))
    for useless in (0, math.nan, math.inf):
        with pytest.raises(InputError, match="give a network that serves"):
            describe_face(picture, stub(80, factor=useless))


class Sure:
    """A detection as dlib's network returns it, in pixels of the picture that it is given."""

    def __init__(self, confidence: float, *sides: int) -> None:
        self.confidence = confidence
        left, top, right, bottom = sides
        self.rect = Box(left, top, right, bottom)


class Box:
    """dlib's rectangle."""

    def __init__(self, left: int, top: int, right: int, bottom: int) -> None:
        self.left, self.top, self.right, self.bottom = (lambda side=side: side for side in (left, top, right, bottom))
        self.width, self.height = (lambda: right - left), (lambda: bottom - top)


def test_a_second_try_looks_where_the_first_finds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: a network that sees a face in the frame of edge pixels only, or in a large photograph that is shrunk for it. The
    rectangle is that of the photograph; doubtful detections are none, and `found_by` names the try.
    """
    monkeypatch.setitem(sys.modules, "dlib", SimpleNamespace(rectangle=Box))
    shown: list[tuple[int, ...]] = []

    def network(pixels: np.ndarray, times: int) -> list[Sure]:
        shown.append(pixels.shape)
        return [Sure(0.9, 110, 60, 210, 160), Sure(0.49, 0, 0, 300, 300)] if pixels.shape[0] in (300, 750) else []

    places: list[tuple[int, ...]] = []

    def predictor(pixels: np.ndarray, box: Box) -> str:
        places.append((box.left(), box.top(), box.right(), box.bottom()))
        return "landmarks"

    def nobody(pixels: np.ndarray, times: int) -> list[Box]:
        return []

    finder = FaceFinder(detector=nobody, predictor=predictor, network=network)
    face = finder.find(np.zeros((200, 200, 3), dtype=np.uint8), only=True, least_px=60)
    assert (face.landmarks, face.found_by, face.confidence) == ("landmarks", SECOND_TRY, 0.9)
    assert shown == [(200, 200, 3), (300, 300, 3)] and places == [(60, 10, 160, 110)]
    finder.find(np.zeros((1501, 1000, 3), dtype=np.uint8))
    assert shown[2:] == [(750, 500, 3)] and places[1] == (220, 120, 420, 320)
    with pytest.raises(NoFace, match=r"tried: dlib's frontal detector .* its detection network"):
        finder.find(np.zeros((100, 100, 3), dtype=np.uint8))
    shown.clear()
    first = FaceFinder(detector=lambda pixels, times: [Box(0, 0, 80, 80)], predictor=predictor, network=network)
    assert first.find(np.zeros((200, 200, 3), dtype=np.uint8)).found_by == FIRST_TRY and not shown


def test_a_face_and_its_mirror_image_are_one_person_and_two_people_are_two(veil_data: Path) -> None:
    needs_faces()
    folder = veil_data / "faces" / "lfw"
    network = load_face_network()
    with (folder / "pairs.csv").open() as file:
        pairs = [row for row in csv.DictReader(file) if row["same"] == "0"][:4]
    pictures = [read_rgb(folder / "images" / pair[side]) for pair in pairs for side in ("image_a", "image_b")]
    vectors, refused = describe_faces(pictures, network)
    rows = [row for row in range(len(pictures)) if row not in refused]
    mirrored, also = describe_faces([np.ascontiguousarray(pictures[row][:, ::-1]) for row in rows], network)
    assert not also and len(rows) >= 6
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1, abs=1e-6)
    same = np.linalg.norm(vectors - mirrored, axis=1)
    other = np.linalg.norm(vectors[:, None] - vectors[None], axis=2)[~np.eye(len(rows), dtype=bool)]
    # The published threshold of 0.6 is for lengths of about 1.4.
    assert np.median(same) < 0.6 / 1.4 < np.median(other)
