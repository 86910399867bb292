"""Releases as a server gets them, with what stays: which feature is which."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from veil.codebooks.codebook import Codebook
from veil.device.device import Device
from veil.device.protection import HideInSubspaces, Protection
from veil.features import Features
from veil.files.atomic import write_bytes
from veil.files.codebooks import bundled_codebook, bundled_decoys
from veil.files.features import read_features
from veil.geometry.camera import as_colmap
from veil.geometry.rigid import Rigid
from veil.ldp.mechanism import SubsetMechanism
from veil.mechanisms.profile import Profile
from veil.mechanisms.public import publish
from veil.mechanisms.release import HideInLines, privatize, privatize_words
from veil.mechanisms.subspaces import lift
from veil.randomness import Secure, seeded
from veil.scene import MappedImage, Scene
from veil.wire.codec import decode, encode
from veil.wire.message import Message

CHANCE = Secure(b"the audit's tests and nothing else"[:32])


def taken(features: Features, rows: np.ndarray) -> Features:
    return replace(
        features, keypoints=features.keypoints[rows], descriptors=features.descriptors[rows], scales=None, orientations=None
    )


def released(features: Features, profile: Profile | None, *, lines: bool = False) -> tuple[Message, np.ndarray]:
    """A message as a server gets it, and the rows of its features: subspaces of `profile`, or words."""
    hide = HideInLines() if lines else None
    book = bundled_codebook()
    if profile is None:
        law = SubsetMechanism(dictionary_size=len(book), epsilon=12.0, m=2)
        words = privatize_words(features, mechanism=law, dictionary=book, randomness=CHANCE, lines=hide)
        return decode(encode(words.upload)), words.order
    decoys: Codebook = bundled_decoys() if profile.decoys == "descriptors" else book
    lifted = privatize(features, profile=profile, compression=book.compression, decoys=decoys, randomness=CHANCE, lines=hide)
    return decode(encode(lifted.upload)), lifted.order


def as_published(file: Path, folder: Path, *, m: int = 4, allow_second: bool = False) -> None:
    """The messages of a file of features, by the paper's profile; otherwise as `veil privatize` writes them."""
    device, descriptors = Device(), HideInSubspaces(profile=Profile.paper(m))
    for name, features in read_features(file):
        made = device.release(features, Protection(descriptors=descriptors), name=name, allow_second=allow_second)
        write_bytes(folder / f"{made.released_as}.veil", made.message)


def planted_map(features: Features, *, public: bool) -> Scene:
    """Three images of points that the query's camera sees at its keypoints, 4 to 8 units away."""
    xy = np.asarray(as_colmap(features.camera).cam_from_img(features.keypoints.astype(np.float64)))
    depth = np.random.default_rng(0).uniform(4, 8, (len(xy), 1))
    points = np.hstack([xy, np.ones((len(xy), 1))]) * depth
    published = publish(features)
    images = {}
    for place in range(3):
        pose = Rigid(rotation=np.eye(3), translation=np.array([0.3 * place, 0.0, 0.0]))
        seen = np.asarray(as_colmap(features.camera).img_from_cam(points + pose.translation)).astype(np.float32)
        form = published
        if not public:
            book = bundled_codebook()
            form = lift(
                features,
                profile=Profile.paper(4),
                compression=book.compression,
                decoys=book,
                randomness=seeded("a map"),
            ).form  # type: ignore[assignment]
        images[f"{place}.jpg"] = MappedImage(
            name=f"{place}.jpg",
            camera=features.camera,
            cam_from_world=pose,
            keypoints=seen,
            point_rows=np.arange(len(points)),
            form=form,
        )
    return Scene(images=images, points=points, mean_reprojection_error_px=0.5)
