"""The picture of the README: `OMP_NUM_THREADS=1 python docs/extensions/front_picture.py` writes docs/figures/front.jpg.

A bundled photograph, what leaves the device by default, and the pictures that two attackers draw from that: one who has a pool
of decoys from elsewhere, by the attack `context`, and one who has the pool that was used, by the attack `database`. Both hold
all that is public, and attack all features that were sent. It takes some minutes.
"""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import veil
from veil.attacks.attack import Attempt
from veil.attacks.registry import named
from veil.attacks.target import Effort, ReleasedImage, Target
from veil.attacks.time_budget import TimeBudget
from veil.audit.ground_truth import find_truth
from veil.audit.on_pictures import as_sift
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
FIGURE = Path(__file__).resolve().parents[1] / "figures" / "front.jpg"


def attacked(upload: veil.Upload, features: veil.Features, attack: str, *, has_pool: bool) -> tuple[np.ndarray, float]:
    """The picture drawn from what `attack` estimates, and the share of descriptors that it recovers within 0.1."""
    knowledge = knowledge_of(veil.Attacker(has_pool=has_pool), [upload])
    target = Target(
        image=ReleasedImage.of(upload),
        rows=np.arange(len(upload)),
        knowledge=knowledge,
        effort=Effort(),
        time=TimeBudget(float("inf"), turns=1, shares={}),
    )
    needed = ("modes", "context") if attack == "context" else (attack,)
    last = try_attacks(target, named(*needed))[-1].outcome
    assert isinstance(last, Attempt) and last.estimates is not None
    truth = find_truth(upload, {"photograph": features}, knowledge.codebook).descriptors[last.rows]
    share = float(np.mean(np.linalg.norm(last.estimates.points - truth, axis=1) < 0.1))
    points = as_sift(last.estimates.points, upload.form.space, knowledge)
    known = partial(points_map, keypoints=upload.keypoints[last.rows], points=points)
    rgb, _ = whole(PlainInverter(bundled_inverter()), upload.camera.width_px, upload.camera.height_px, known)
    return rgb, share


def figure(photograph: np.ndarray, upload: veil.Upload, drawn: dict[str, np.ndarray]) -> Any:
    """The pictures side by side."""
    import matplotlib.pyplot as plt

    height, width = photograph.shape[:2]
    shown, axes = plt.subplots(1, 2 + len(drawn), figsize=(10.4, 4.3))
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
    """Write the figure, and print the share of descriptors that each attack recovered."""
    with lund_door() as place, tempfile.TemporaryDirectory() as home:
        path = place.folder / HELD_OUT[0]
        features = veil.extract(veil.read_picture(path, camera=place.camera))
        secret = Path(home) / "secret"
        secret.touch(mode=0o600)
        secret.write_bytes(KEY)
        upload = veil.Device(Path(home)).release(features, purpose="map").upload
        photograph = read_rgb(path)
    assert isinstance(upload, veil.Upload)
    drawn = {}
    for attack, has_pool in (("context", False), ("database", True)):
        title = f"drawn {'with' if has_pool else 'without'} the decoy pool"
        drawn[title], share = attacked(upload, features, attack, has_pool=has_pool)
        print(f"{attack}: {100 * share:.0f} % of {len(upload)} descriptors within 0.1")
    figure(photograph, upload, drawn).savefig(FIGURE, dpi=110, pil_kwargs={"quality": 85})


if __name__ == "__main__":
    main()
