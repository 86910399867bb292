"""`veil faces ... --model`: descriptors by a network of the user's own, from photographs to verification."""

from __future__ import annotations

import hashlib
import importlib.util
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from face_worlds.onnx_models import linear, matrix
from veil.cli import main
from veil_faces.cli import asked_network
from veil_faces.extraction.face_finder import FaceFinder
from veil_faces.extraction.face_onnx import TEMPLATE, OnnxModel, OnnxNetwork
from veil_faces.files.faces import read_faces
from worlds import generator
from worlds.schemas import validate

SIZE, DIM = 16, 24
WEIGHTS = matrix(SIZE, DIM)


def run(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


def blobs(name: str, count: int, folder: Path) -> None:
    """Photographs of `count` faces: smooth random pictures of 112 px, which are aligned already."""
    folder.mkdir()
    random = generator(name)
    for k in range(count):
        coarse = Image.fromarray(random.integers(0, 256, (7, 7, 3)).astype(np.uint8))
        coarse.resize((112, 112), Image.Resampling.BICUBIC).save(folder / f"{k:03d}.png")


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model, photographs, and a finder that takes each photograph for one aligned face of 80 px."""
    (tmp_path / "m.onnx").write_bytes(linear(WEIGHTS, ("N", 3, SIZE, SIZE)).SerializeToString())
    blobs("others", 60, tmp_path / "others")
    blobs("people", 6, tmp_path / "people")
    places = {**dict.fromkeys(range(36, 42), 0), **dict.fromkeys(range(42, 48), 1), 30: 2, 48: 3, 54: 4}
    shape = SimpleNamespace(part=lambda k: SimpleNamespace(x=TEMPLATE[places[k], 0], y=TEMPLATE[places[k], 1]))
    face = SimpleNamespace(width=lambda: 80, height=lambda: 80)
    finder = FaceFinder(detector=lambda pixels, times: [face], predictor=lambda pixels, face: shape)

    def network(model: OnnxModel, *, second_try: bool) -> OnnxNetwork:
        return OnnxNetwork(finder=finder, model=model)

    monkeypatch.setattr(asked_network, "load_onnx_network", network)
    return tmp_path


@pytest.mark.slow
def test_a_model_describes_and_verifies(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Oracle: a face is itself and not another one; the file names the model by its SHA-256."""
    model = ("--model", photos / "m.onnx")
    named = f"onnx-{hashlib.sha256((photos / 'm.onnx').read_bytes()).hexdigest()[:12]}"
    assert run("faces", "describe", photos / "others", "-o", photos / "o.npz", *model, "--json", "-") == 0
    told = json.loads(capsys.readouterr().out)
    validate("faces-describe", told)
    assert told == {"photographs": 60, "faces": 60, "refused": {}, "second_try": {}, "space": f"{named} L2 {DIM}-D"}
    others = read_faces(photos / "o.npz")
    assert others.space.descriptor == named and others.vectors.shape == (60, DIM)
    assert run("faces", "describe", photos / "people", "-o", photos / "p.npz", *model) == 0
    people = read_faces(photos / "p.npz").names
    pairs = [f"{a},{b},{int(a == b)}" for a in people for b in people]
    (photos / "pairs.csv").write_text("\n".join(["image_a,image_b,same", *pairs]))
    store, decoys = photos / "door.store", ("--decoys", photos / "o.npz")
    assert run("faces", "create", store, *decoys, "--m", 2) == 0
    assert run("faces", "calibrate", store, photos / "p.npz", "--face-pairs", photos / "pairs.csv", *decoys) == 0
    alice = ("--person", "alice", *decoys)
    assert run("faces", "enroll", store, photos / "people/001.png", *alice, *model) == 0
    assert run("faces", "verify", store, photos / "people/001.png", *alice, *model) == 0
    assert run("faces", "verify", store, photos / "p.npz", "--face-name", "001.png", *alice) == 0
    assert run("faces", "verify", store, photos / "people/002.png", *alice, *model) == 3


@pytest.mark.slow
def test_every_kind_of_no_is_one_exit_code(
    photos: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """0 yes, 3 no, 1 where the question could not be asked: scripts need no list of reasons, and none tells who is enrolled."""
    model, photo = ("--model", photos / "m.onnx"), photos / "people/001.png"
    store, decoys = photos / "door.store", ("--decoys", photos / "o.npz")
    assert run("faces", "describe", photos / "others", "-o", photos / "o.npz", *model) == 0
    assert run("faces", "describe", photos / "people", "-o", photos / "p.npz", *model) == 0
    people = read_faces(photos / "p.npz").names
    (photos / "pairs.csv").write_text(
        "\n".join(["image_a,image_b,same", *[f"{a},{b},{int(a == b)}" for a in people for b in people]])
    )
    assert run("faces", "create", store, *decoys, "--m", 2) == 0
    assert run("faces", "enroll", store, photo, "--person", "alice", *decoys, *model) == 0
    assert run("faces", "verify", store, photo, "--person", "alice", *decoys, *model) == 1, "no threshold"
    assert run("faces", "calibrate", store, photos / "p.npz", "--face-pairs", photos / "pairs.csv", *decoys) == 0

    def reason(person: str, shown: Path) -> str:
        capsys.readouterr()
        assert run("faces", "verify", store, shown, "--person", person, *decoys, *model, "--json", "-") == 3
        told = json.loads(capsys.readouterr().out)
        validate("faces-verify", told)
        assert told["accepted"] is False
        return str(told["reason"])

    assert reason("alice", photos / "people/002.png") == "distance"
    assert reason("nobody", photo) == "no template"
    network = asked_network.load_onnx_network

    def finding(count: int, width: int) -> None:
        """From now on every photograph shows `count` faces of `width` pixels."""
        box = SimpleNamespace(width=lambda: width, height=lambda: width)

        def load(model: OnnxModel, *, second_try: bool) -> OnnxNetwork:
            stub = network(model, second_try=second_try)
            return replace(stub, finder=replace(stub.finder, detector=lambda pixels, times: [box] * count))

        monkeypatch.setattr(asked_network, "load_onnx_network", load)

    for count, width in ((0, 80), (2, 80), (1, 59)):
        finding(count, width)
        assert reason("alice", photo) == "no face"
    finding(1, 60)
    assert run("faces", "verify", store, photo, "--person", "alice", *decoys, *model) == 0
    assert run("faces", "verify", store, photos / "none.png", "--person", "alice", *decoys, *model) == 1, "no photograph"
    assert run("faces", "revoke", store, "--person", "alice") == 0
    assert reason("alice", photo) == "no template"


@pytest.mark.slow
def test_what_does_not_fit_the_store_is_refused(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Another model, another preparation, dlib's network: none of their descriptors means anything in this store."""
    model, photo = ("--model", photos / "m.onnx"), photos / "people/001.png"
    (photos / "n.onnx").write_bytes(linear(matrix(SIZE, DIM, "n"), ("N", 3, SIZE, SIZE)).SerializeToString())
    (photos / "text.onnx").write_text("not a network")
    assert run("faces", "describe", photos / "others", "-o", photos / "o.npz", *model) == 0
    assert run("faces", "create", photos / "door.store", "--decoys", photos / "o.npz") == 0
    capsys.readouterr()
    for given, match in (
        ((photo,), "dlib-face L2 128-D"),
        ((photo, "--model", photos / "n.onnx"), "the photograph would become [onnx-"),
        ((photo, *model, "--bgr"), "-bgr L2"),
        ((photo, *model, "--scale", 128), "the store has [onnx-"),
        ((photo, *model, "--scale", 0), "scale must be"),
        ((photo, "--mean", 0), "describe the network of --model"),
        ((photo, "--model", photos / "text.onnx"), "text.onnx: this is no ONNX model"),
        ((photo, "--model", photos / "none.onnx"), "none.onnx is no file"),
        ((photos / "o.npz", "--face-name", "001.png", *model), "holds descriptors already"),
    ):
        arguments = ("--person", "a", "--decoys", photos / "o.npz")
        assert run("faces", "enroll", photos / "door.store", *given, *arguments) == 1, match
        assert match in capsys.readouterr().err


def test_photographs_of_people_by_dlibs_landmarks(veil_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Oracle: an inverse pair. A photograph that is turned and enlarged gives nearly the descriptor of itself, as its face is
    aligned; those of other people, aligned as well, lie farther off. The network averages 8 x 8 fields of the square.
    """
    pytest.importorskip("dlib", reason="face descriptors need the extra veil-faces[networks]")
    if importlib.util.find_spec("face_recognition_models") is None:
        pytest.skip("face descriptors need the extra veil-faces[networks]")
    fields = np.arange(112) // 14
    places = (8 * fields[:, None] + fields).reshape(-1)
    mean = (places[:, None] == np.arange(64)).astype(np.float32) / 196
    (tmp_path / "fields.onnx").write_bytes(linear(np.tile(mean, (3, 1)), ("N", 3, 112, 112)).SerializeToString())
    for folder in ("plain", "turned"):
        (tmp_path / folder).mkdir()
    for path in sorted((veil_data / "faces/fairface/images").glob("*.jpg"))[:8]:
        with Image.open(path) as photo:
            photo.save(tmp_path / "plain" / f"{path.stem}.png")
            larger = photo.resize((int(1.4 * photo.width), int(1.4 * photo.height)), Image.Resampling.BICUBIC)
            larger.rotate(8, Image.Resampling.BICUBIC).save(tmp_path / "turned" / f"{path.stem}.png")
    for folder in ("plain", "turned"):
        out, model = tmp_path / f"{folder}.npz", tmp_path / "fields.onnx"
        assert run("faces", "describe", tmp_path / folder, "-o", out, "--model", model) == 0
    plain, turned = (read_faces(tmp_path / f"{folder}.npz") for folder in ("plain", "turned"))
    both = sorted(set(plain.names) & set(turned.names))
    assert len(both) >= 5 and plain.space == turned.space and plain.space.dim == 64
    a, b = (faces.vectors[[faces.names.index(name) for name in both]] for faces in (plain, turned))
    distance = np.linalg.norm(a[:, None] - b[None], axis=2)
    assert (distance.argmin(axis=1) == np.arange(len(both))).all()
    assert np.diag(distance).max() < np.median(distance[~np.eye(len(both), dtype=bool)]) / 2
