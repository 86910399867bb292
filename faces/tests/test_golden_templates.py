"""Templates that cannot change by accident: whole ones for one secret, as veil 0.1 made them.

Oracle: two of the files in tests/mechanisms/golden/, which tests of the wire read, too. They were written by
`python faces/tests/test_golden_templates.py`, and are never written again unless templates are meant to change;
tests/mechanisms/test_golden.py says what is compared.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from veil.geometry.camera import Camera
from veil.randomness import Secret
from veil.space import Space
from veil.wire import Upload, encode
from veil_faces.collection import Faces
from veil_faces.template import FaceClient, TemplateScheme, decoys_digest
from worlds.pinned import require_unchanged, stream

FOLDER = Path(__file__).parents[2] / "tests" / "mechanisms" / "golden"
SECRET = Secret(b"golden secret".ljust(32, b"."))
CAMERA = Camera(model="SIMPLE_RADIAL", width_px=640, height_px=480, params=(500.0, 320.0, 240.0, -0.03))


def template(*, balance: str = "", quota: tuple[tuple[str, int], ...] = ()) -> bytes:
    """A face's template, in the form of a message: its numbers, behind a camera and positions that say nothing."""
    space = Space(descriptor="golden face", normalization="L2", dim=32)
    people = stream("people", 81, 32).astype(np.float64) - 127.5
    people = (people / np.linalg.norm(people, axis=1, keepdims=True)).astype(np.float32)
    labels = tuple("ab"[row % 4 // 2] for row in range(80))
    pool = Faces(vectors=people[1:], space=space, names=tuple(f"face {row}" for row in range(80)), labels={"group": labels})
    scheme = TemplateScheme(
        strategy="hybrid", m=6, comparison="p2s", space=space, decoys=decoys_digest(pool, balance), balance=balance, quota=quota
    )
    client = FaceClient(scheme=scheme, decoys=pool, secret=SECRET)
    form = client.template(people[0], purpose="door", person="ada", version=1, label="a" if balance else None)
    return encode(Upload(camera=CAMERA, keypoints=np.zeros((1, 2), dtype=np.float32), form=form), dtype="float32")


TEMPLATES: dict[str, Callable[[], bytes]] = {
    "face": template,
    "face-balanced": lambda: template(balance="group", quota=(("a", 2), ("b", 1))),
}


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_is_what_it_was(name: str) -> None:
    require_unchanged((FOLDER / f"{name}.veil").read_bytes(), TEMPLATES[name](), step=2.0**-22)


if __name__ == "__main__":
    for name, make in TEMPLATES.items():
        (FOLDER / f"{name}.veil").write_bytes(make())
