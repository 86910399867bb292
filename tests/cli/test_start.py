"""A command loads what it needs: starting is most of the time of a short one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from crowd import crowd, pairs_of
from veil.cli import main
from veil.files.faces import write_faces

HEAVY = ("cv2", "dlib", "faiss", "matplotlib", "numba", "onnxruntime", "poselib", "pycolmap", "torch")


def loaded(*arguments: object) -> tuple[int, set[str]]:
    """The exit code of a command in a process of its own, and what of HEAVY it loaded."""
    code = f"import sys\nfrom veil.cli import main\ntry:\n    done = main({[str(a) for a in arguments]!r})\n"
    code += "except SystemExit as stop:\n    done = stop.code\n"
    code += f"print(done or 0, *(name for name in {HEAVY!r} if name in sys.modules))"
    lines = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
    done, *names = lines[-1].split()
    return int(done), set(names)


def test_the_version_loads_nothing() -> None:
    assert loaded("--version") == (0, set())


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
    who = ("--name", faces.names[0], "--person", "a", "--decoys", "o.npz")
    assert main(["faces", "create", "s", "--decoys", "o.npz"]) == 0
    assert main(["faces", "calibrate", "s", "f.npz", "--pairs", "p.csv", "--decoys", "o.npz"]) == 0
    assert main(["faces", "enroll", "s", "f.npz", *who]) == 0
    done, names = loaded("faces", "verify", "s", "f.npz", *who)
    assert done == 0 and names <= {"numba"}
