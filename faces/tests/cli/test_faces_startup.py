"""A command of faces loads what it needs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from face_worlds.crowd import crowd, pairs_of
from veil.cli import main
from veil_faces.files.faces import write_faces

LOADED = """
import contextlib, io, sys
from veil.cli import main
with contextlib.redirect_stdout(io.StringIO()) as said, contextlib.suppress(SystemExit):
    main(sys.argv[1:])
assert said.getvalue()
print(*[name for name in {names} if name in sys.modules])
"""


def loaded(names: tuple[str, ...], *words: str) -> list[str]:
    """Which of the modules a process has after a command that printed something."""
    run = subprocess.run([sys.executable, "-c", LOADED.format(names=names), *words], capture_output=True, text=True, check=True)
    return run.stdout.split()


@pytest.mark.slow
def test_a_descriptor_verifies_without_what_looks_at_photographs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Distances are compiled, so the compiler may be loaded; detectors, networks and solvers of geometry must not be."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VEIL_HOME", str(tmp_path / "home"))
    faces = crowd("victims", 6, 2)
    write_faces(tmp_path / "f.npz", faces)
    write_faces(tmp_path / "o.npz", crowd("decoys", 80, 1))
    pairs = pairs_of(faces, 5)
    lines = [f"{faces.names[a]},{faces.names[b]},{int(c)}" for a, b, c in zip(pairs.left, pairs.right, pairs.same, strict=True)]
    (tmp_path / "p.csv").write_text("\n".join(["image_a,image_b,same", *lines]))
    who = ("--face-name", faces.names[0], "--person", "a", "--decoys", "o.npz")
    assert main(["faces", "create", "s", "--decoys", "o.npz"]) == 0
    assert main(["faces", "calibrate", "s", "f.npz", "--face-pairs", "p.csv", "--decoys", "o.npz"]) == 0
    assert main(["faces", "enroll", "s", "f.npz", *who]) == 0
    looking = ("cv2", "dlib", "faiss", "matplotlib", "onnxruntime", "poselib", "pycolmap", "torch")
    assert loaded(looking, "faces", "verify", "s", "f.npz", *who) == []
