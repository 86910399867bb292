"""The picture of the README: `OMP_NUM_THREADS=1 python docs/extensions/front_picture.py` writes docs/figures/front.jpg.

A bundled photograph, what leaves the device by default so that it is localized, and the picture that the attack draws from that
which names most words: `neighbors`, which has learned from the other eleven photographs of the place which words are neighbors.
"""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import veil
from veil.attacks.attack import Attempt
from veil.attacks.registry import chosen
from veil.attacks.target import Effort, ReleasedImage, Target
from veil.attacks.time_budget import TimeBudget
from veil.audit.ground_truth import find_truth
from veil.audit.run import try_attacks
from veil.device.attacker import knowledge_of
from veil.files.attack_networks import bundled_inverter
from veil.files.photographs.examples import HELD_OUT, lund_door
from veil.files.photographs.pictures import read_rgb
from veil.inversion.forward import PlainInverter
from veil.inversion.maps import points_map
from veil.inversion.whole import whole

# The photograph is public. A fixed key gives the same picture in each run.
KEY = bytes(range(32))
ATTACK = "neighbors"
FIGURE = Path(__file__).resolve().parents[1] / "figures" / "front.jpg"


def attacked(
    upload: veil.Upload, features: veil.Features, attack: str, others: list[veil.Features]
) -> tuple[np.ndarray, float]:
    """The picture drawn from what `attack` estimates, and the share of words that it names right."""
    form = upload.form
    assert isinstance(form, veil.Subsets)
    knowledge = knowledge_of(veil.Attacker(photographs=others), [upload])
    target = Target(
        image=ReleasedImage.of(upload),
        rows=np.arange(len(upload)),
        knowledge=knowledge,
        effort=Effort(),
        time=TimeBudget(float("inf"), turns=1, shares={}),
    )
    last = try_attacks(target, chosen([attack]))[-1].outcome
    assert isinstance(last, Attempt) and last.estimates is not None
    truth = find_truth(upload, {"photograph": features}, knowledge.codebook).descriptors[last.rows]
    book = veil.bundled_codebook()
    named_words, words = (book.nearest(vectors.astype(np.float32)) for vectors in (last.estimates.points, truth))
    share = float(np.mean(named_words == words))
    known = partial(points_map, keypoints=upload.keypoints[last.rows], points=last.estimates.points)
    rgb, _ = whole(PlainInverter(bundled_inverter()), upload.camera.width_px, upload.camera.height_px, known)
    return rgb, share


def figure(photograph: np.ndarray, upload: veil.Upload, drawn: dict[str, np.ndarray]) -> Any:
    """The pictures side by side."""
    import matplotlib.pyplot as plt

    height, width = photograph.shape[:2]
    shown, axes = plt.subplots(1, 2 + len(drawn), figsize=(7.8, 4.3))
    axes[0].imshow(photograph)
    axes[1].scatter(*upload.keypoints.T, s=1.6, color="#3b4252")
    axes[1].set(xlim=(0, width), ylim=(height, 0), aspect="equal", facecolor="#f6f6f6")
    for axis, rgb in zip(axes[2:], drawn.values(), strict=True):
        axis.imshow(rgb)
    for axis, title in zip(axes, ("the photograph", "what leaves the device", *drawn), strict=True):
        axis.set_title(title, fontsize=10)
        axis.set(xticks=[], yticks=[])
    shown.tight_layout(pad=0.4, w_pad=0.8)
    return shown


def main() -> None:
    """Write the figure, and print the share of words that the attack named right."""
    with lund_door() as place, tempfile.TemporaryDirectory() as home:
        path = place.folder / HELD_OUT[0]
        features = veil.extract(veil.read_picture(path, camera=place.camera))
        others = [place.folder / name for name in sorted(place.poses) if name != path.name]
        known = [veil.extract(veil.read_picture(other, camera=place.camera)) for other in others]
        down = veil.measure_gravity([path], camera=",".join([place.camera.model, *map(str, place.camera.params)]))
        secret = Path(home) / "secret"
        secret.touch(mode=0o600)
        secret.write_bytes(KEY)
        upload = veil.Device(Path(home)).release(features, gravity=down[path.name].direction).upload
        photograph = read_rgb(path)
    assert isinstance(upload, veil.Upload)
    drawn, share = attacked(upload, features, ATTACK, known)
    print(f"{ATTACK}: {100 * share:.0f} % of {len(upload)} words named right")
    figure(photograph, upload, {"drawn by the best attack": drawn}).savefig(FIGURE, dpi=110, pil_kwargs={"quality": 85})


if __name__ == "__main__":
    main()
