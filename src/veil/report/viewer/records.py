"""The record of a page: what its script reads beside the arrays."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float64

from veil.errors import Remedy, Say, sentence
from veil.report.viewer.content import ShownImage, View, ViewLimits
from veil.report.viewer.packing import (
    PackedArray,
    PackedImages,
    PackedPoints,
    array,
    attack_colors,
    evenly,
    fractions,
    photograph_colors,
)

NO_DEVICE, NO_ATTACK = "nothing that only the device knows is in this page", "no attack is in this page"
# An ellipsoid that holds the center with 95 % is drawn at least so long, in cameras: else it is enlarged, and the page says so.
LEAST_RING, MOST_ENLARGED, SIGMAS = 0.4, 10_000, 2.8


class Pictures:
    """The pictures of a page: photographs by image, what attacks drew, and the data URIs of all."""

    def __init__(self, view: View, images: Sequence[ShownImage], limits: ViewLimits) -> None:
        self.uris: list[str] = []
        self.photographs: dict[str, int] = {}
        self.recovered: dict[str, list[tuple[str, int]]] = {}
        self.sent: dict[str, int] = {}
        self.left_out = 0
        for image in images:
            if image.sent is not None:
                self.sent[image.name] = self._add(image.sent, limits.picture_px)
        taken = [image.name for image in images if (known := view.known.get(image.name)) and known.photograph is not None]
        chosen = {taken[row] for row in evenly(len(taken), limits.pictures)} if taken else set()
        self.left_out += len(taken) - len(chosen)
        for name in chosen:
            photograph = view.known[name].photograph
            assert photograph is not None
            self.photographs[name] = self._add(photograph, limits.picture_px)
        drawn = [(image.name, item) for image in images for item in view.recovered.get(image.name, ())]
        for row in evenly(len(drawn), limits.pictures) if drawn else ():
            name, item = drawn[row]
            self.recovered.setdefault(name, []).append((item.title, self._add(item.rgb, limits.picture_px)))
        self.left_out += len(drawn) - sum(len(recovered) for recovered in self.recovered.values())

    def _add(self, rgb: np.ndarray, most_px: int) -> int:
        """The number of a new picture, made smaller where its longer side is longer than `most_px`."""
        from PIL import Image

        picture = Image.fromarray(rgb)
        picture.thumbnail((most_px, most_px))
        buffer = io.BytesIO()
        picture.save(buffer, "JPEG", quality=80)
        self.uris.append(f"data:image/jpeg;base64,{base64.b64encode(buffer.getvalue()).decode()}")
        return len(self.uris) - 1


def record(
    view: View, points: PackedPoints, images: PackedImages, pictures: Pictures, say: Say = str
) -> tuple[dict[str, Any], list[PackedArray]]:
    """The page's record, and the arrays of colors and true positions; `say` turns a remedy into a phrase."""
    absent = {
        "device": _sentence(NO_DEVICE, Remedy("give", "view_map.device"), say),
        "attack": _sentence(NO_ATTACK, Remedy("give", "view_map.report"), say),
    }
    poses = [image.cam_from_world for image in images.images if image.cam_from_world is not None]
    centers = np.array([pose.center - points.origin for pose in poses]).reshape(-1, 3)
    reach = max(points.extent, 0.5 * float(np.linalg.norm(np.ptp(centers, axis=0))) if len(centers) else 0.0) or 1.0
    pyramid = _pyramid(centers, reach)
    known, known_first, known_count = _known(view, images.images)
    arrays = [array("known", known)] if len(known) else []
    for name, colors in (("device", photograph_colors(view)), ("attack", attack_colors(view))):
        if colors[:, 3].any():
            arrays.append(array(name, colors[points.kept]))
    rows = [
        _image(image, points.origin, images, k, pictures, (known_first[k], known_count[k]))
        for k, image in enumerate(images.images)
    ]
    head = {
        "points": {
            "count": len(points.kept),
            "origin": points.origin.tolist(),
            "low": points.low.tolist(),
            "stride": points.stride.tolist(),
            "size": float(np.clip(0.7 * reach / math.sqrt(max(1, len(points.kept))), reach / 1400, reach / 125)),
        },
        "images": rows,
        "pictures": pictures.uris,
        "reach": reach,
        "pyramid": pyramid,
        "enlarged": _enlarged(images.images, pyramid),
        "gallery": not len(points.kept) and not poses,
        "facts": _facts(view, points, images, pictures, absent),
        "absent": absent,
        **_outlook(view, centers, poses),
    }
    return head, arrays


def _sentence(cause: str, remedy: Remedy, say: Say) -> str:
    """The cause and the remedy as a sentence with its capital and its period."""
    text = sentence(cause, (remedy,), say)
    return f"{text[0].upper()}{text[1:]}."


def _known(view: View, images: Sequence[ShownImage]) -> tuple[np.ndarray, list[int], list[int]]:
    """True positions of keypoints, one image after the other, and where those of each image begin and how many there are."""
    tables, first, count, at = [np.zeros((0, 2), dtype=np.uint16)], [], [], 0
    for image in images:
        item = view.known.get(image.name)
        true = np.zeros((0, 2)) if item is None or item.keypoints is None else item.keypoints
        tables.append(fractions(true, image))
        first.append(at)
        count.append(len(true))
        at += len(true)
    return np.concatenate(tables), first, count


def _image(
    image: ShownImage, origin: np.ndarray, images: PackedImages, k: int, pictures: Pictures, known: tuple[int, int]
) -> dict[str, Any]:
    """The record of one image."""
    camera, pose = image.camera, image.cam_from_world
    focal = camera.params[0], camera.params[camera.focal_count - 1]
    middle = camera.params[camera.focal_count : camera.focal_count + 2]
    return {
        "name": image.name,
        "query": image.is_query,
        "pose": None
        if pose is None
        else {"rotation": pose.rotation.ravel().tolist(), "center": (pose.center - origin).tolist()},
        "size": [camera.width_px, camera.height_px],
        "focal": list(focal),
        "middle": list(middle),
        "first": images.first[k],
        "count": images.count[k],
        "lines": images.lines[k],
        "known": known[0],
        "knownCount": known[1],
        "photograph": pictures.photographs.get(image.name),
        "sent": pictures.sent.get(image.name),
        "recovered": [{"title": title, "picture": number} for title, number in pictures.recovered.get(image.name, ())],
        "uncertainty": _axes(image.center_covariance),
        "said": list(image.told),
    }


def _pyramid(centers: Float64[np.ndarray, "cameras 3"], reach: float) -> float:
    """How long the longer side of a camera's pyramid is drawn: as far as cameras are apart, within bounds."""
    from scipy.spatial import cKDTree

    if len(centers) < 2:
        return 0.07 * reach
    apart = float(np.median(cKDTree(centers).query(centers, k=2)[0][:, 1]))
    return float(np.clip(1.2 * apart, 0.008 * reach, 0.07 * reach))


def _axes(covariance: Float64[np.ndarray, "3 3"] | None) -> list[float] | None:
    """The principal axes of a covariance, each as long as its standard deviation; None without one, or for NaN."""
    if covariance is None or not np.isfinite(covariance).all():
        return None
    values, vectors = np.linalg.eigh(0.5 * (covariance + covariance.T))
    return (vectors * np.sqrt(np.maximum(values, 0.0))).T.ravel().tolist()


def _enlarged(images: Sequence[ShownImage], pyramid: float) -> int:
    """How many times uncertainties are drawn larger, a round number, so that those of half of the queries can be seen."""
    axes = [_axes(image.center_covariance) for image in images]
    longest = [max(np.linalg.norm(np.reshape(item, (3, 3)), axis=1)) for item in axes if item is not None]
    if not longest or not (middle := float(np.median(longest))) > 0:
        return 1
    wanted = LEAST_RING * pyramid / (SIGMAS * middle)
    steps = [step * 10**power for power in range(5) for step in (1, 2, 5)]
    return next((step for step in steps if step >= min(wanted, MOST_ENLARGED)), MOST_ENLARGED)


def _outlook(view: View, centers: np.ndarray, poses: Sequence[Any]) -> dict[str, Any]:
    """Where up is, and from where the page looks at first: from where the cameras are, a little aside and above."""
    if view.down is not None:
        up = -view.down
    elif poses:
        up = -np.sum([pose.rotation[1] for pose in poses], axis=0)
    else:
        up = np.array([0.0, 0.0, 1.0])
    if not np.linalg.norm(up) > 1e-9:
        up = np.array([0.0, 0.0, 1.0])
    up = up / np.linalg.norm(up)
    ahead = np.sum([pose.rotation[2] for pose in poses], axis=0) if poses else np.array([0.0, 1.0, 0.0])
    back = -ahead + up * (ahead @ up)
    if not np.linalg.norm(back) > 1e-6 * max(1, len(poses)):
        back = np.cross(up, [1.0, 0.0, 0.0] if abs(up[0]) < 0.9 else [0.0, 1.0, 0.0])
    back = back / np.linalg.norm(back)
    return {"up": up.tolist(), "back": back.tolist(), "turn": 0.45, "tilt": 0.33}


def _facts(
    view: View, points: PackedPoints, images: PackedImages, pictures: Pictures, absent: Mapping[str, str]
) -> dict[str, list[str]]:
    """Sentences about what each of the three has, or how it is had; the first of each stands in the page's head."""
    server = list(view.of_server)
    if len(points.kept):
        server.append(f"Points of this page are within {points.error:.1g} of those of the map, in its units.")
    if points.not_finite:
        server.append(f"{points.not_finite:,} points are not finite and left out.")
    if len(points.kept) + points.not_finite < len(view.points):
        server.append(f"{len(points.kept):,} of {len(view.points):,} points are in this page, evenly chosen.")
    if len(images.images) < len(view.images):
        server.append(f"{len(images.images):,} of {len(view.images):,} images are in this page, evenly chosen.")
    if images.left_out:
        server.append(f"{images.left_out:,} sightings are left out of this page.")
    few = [f"{pictures.left_out:,} pictures are left out of this page."] if pictures.left_out else []
    names = {image.name for image in images.images}
    known, drawn = sorted(names & set(view.known)), sorted(names & set(view.recovered))
    device = [absent["device"]]
    if known:
        true = sum(view.known[name].keypoints is not None for name in known)
        given = [f"the photographs of {len(pictures.photographs)}"] if pictures.photographs else []
        given += [f"the true positions of keypoints of {true}"] if true else []
        device = [
            f"This page holds {' and '.join(given)} of {len(images.images)} images.",
            "Keep it where the photographs may be. Points have the colors of the photographs.",
            *few,
        ]
    attack = [absent["attack"]]
    if drawn:
        attack = [
            f"Pictures that attacks drew of {len(drawn)} of {len(images.images)} images, from what the server has of them.",
            "Each says how it was drawn. Points have the colors of these pictures.",
            "What known attacks reach is a lower bound: a poor picture does not show that no attack does better.",
            *few,
        ]
    elif any(image.lines is not None for image in images.images):
        attack = ["A map gives hidden positions back: each point's projections lie near the keypoints that lines hid.", *attack]
    return {"device": device, "server": server or ["Nothing."], "attack": attack}
