"""Localization of several frames with known motions, as a server holds them (docs/theory/sequences.md)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Float32

from veil.codebooks.codebook import Codebook
from veil.codebooks.mirror import mirrored_descriptors
from veil.errors import InputError, RangeError, Remedy
from veil.forms import Form, Lines, Subsets
from veil.geometry.rigid import Rigid
from veil.places.held_map import Map, index_for, ranked_images
from veil.places.localization import POSITION_SECONDS, WORD_SECONDS, extent_of_points
from veil.places.pairs.images import LoadedImage
from veil.places.poses.answer import Localization, NoPose
from veil.places.poses.options import LocalizeOptions, PositionOptions, WordOptions
from veil.places.poses.sequences.answer import SequenceLocalization
from veil.progress import Progress

# Frames that stand apart by more than this multiple of the map's extent are of another scale.
MOST_APART = 100.0


def localize_loaded_sequence(
    images: Sequence[LoadedImage],
    cam_from_rig: Sequence[Rigid],
    where: Map,
    *,
    scale: float = 1.0,
    options: LocalizeOptions | None = None,
    word_options: WordOptions | None = None,
    position_options: PositionOptions | None = None,
    codebook: Codebook | None = None,
    dictionary: Codebook | None = None,
    near: Sequence[str] | None = None,
    progress: Progress | None = None,
) -> SequenceLocalization | NoPose:
    """Estimate the pose of several frames on a map with one evidence, or say why no pose is better than chance.

    `images` are the frames as a server holds them, `cam_from_rig` their motions; the other arguments, and what is raised, are
    those of `veil.localize_sequence`.
    """
    from veil.places.poses.sequences.frames import Frames, answer_of_frames

    _require_usable(images, cam_from_rig, where, scale)
    motions = tuple(Rigid(rotation=one.rotation, translation=scale * one.translation) for one in cam_from_rig)
    frame_of = np.concatenate([np.full(image.features, frame, dtype=np.int64) for frame, image in enumerate(images)])
    frames = Frames(cameras=tuple(image.camera for image in images), cams_from_rig=motions, frame_of=frame_of)
    observations = np.concatenate([np.asarray(image.positions, dtype=np.float32) for image in images])
    if isinstance(images[0].form, Subsets):
        words = word_options or WordOptions(max_seconds=WORD_SECONDS)
        answer = _by_words(images, frames, observations, where, words, position_options, dictionary, near, progress)
    else:
        answer = _by_distance(images, frames, observations, where, options or LocalizeOptions(), codebook, progress)
    return answer_of_frames(answer, frames, scale) if isinstance(answer, Localization) else answer


def _require_usable(images: Sequence[LoadedImage], motions: Sequence[Rigid], where: Map, scale: float) -> None:
    """Raise InputError for frames that have no common pose, and RangeError for an impossible scale."""
    if not 0 < scale < float("inf"):
        raise RangeError(f"scale must be positive and finite, got {scale!r}")
    if len(images) != len(motions) or not images:
        raise InputError(f"{len(images)} frames need as many motions, got {len(motions)}")
    if any(isinstance(image.positions, Lines) for image in images):
        raise InputError(
            "frames whose positions are hidden in lines are not localized together; localize each alone",
            remedy=Remedy("leave out", "localize_sequence.sequence"),
        )
    if len({image.kind for image in images}) > 1:
        raise InputError("the frames of a sequence have one form and one space")
    for number, image in enumerate(images, start=1):
        if not image.camera.focal_is_known:
            raise InputError(
                f"frame {number}: its focal length is a guess, and frames are localized together with known ones only",
                remedy=Remedy("give", "Features.camera"),
            )
    apart = scale * float(np.linalg.norm(np.ptp([motion.center for motion in motions], axis=0)))
    extent = extent_of_points(where.scene)
    if apart > MOST_APART * extent:
        raise InputError(
            f"the frames stand {apart:.3g} units of the map apart, and its points only {extent:.3g}; is the scale wrong?",
            remedy=Remedy("give", "localize_sequence.scale"),
        )


def _by_words(
    images: Sequence[LoadedImage],
    frames: object,
    observations: Float32[np.ndarray, "features 2"],
    where: Map,
    options: WordOptions,
    position_options: PositionOptions | None,
    dictionary: Codebook | None,
    near: Sequence[str] | None,
    progress: Progress | None,
) -> Localization | NoPose:
    """The answer to frames in words, or of positions alone, with gravity."""
    from veil.places.poses.sequences.by_words import localize_positions_of_frames, localize_words_of_frames
    from veil.places.poses.sequences.frames import Frames

    assert isinstance(frames, Frames)
    gravity = []
    for number, image in enumerate(images, start=1):
        if image.gravity is None or where.scene.down is None:
            whose = f"frame {number}" if image.gravity is None else "the map"
            raise InputError(
                f"frames in words are localized together with gravity, and that of {whose} is unknown",
                remedy=Remedy("give", "Protection.gravity") if image.gravity is None else Remedy("give", "map_images.gravity"),
            )
        gravity.append(image.gravity)
    first = images[0].form
    assert isinstance(first, Subsets)
    if first.mechanism.epsilon == 0:
        asked = position_options or PositionOptions(max_seconds=POSITION_SECONDS)
        return localize_positions_of_frames(
            frames, observations, where.scene, gravity=gravity, near=near or (), options=asked, progress=progress
        )
    form = replace(first, ids=np.concatenate([image.form.ids for image in images if isinstance(image.form, Subsets)]))
    index = index_for(where, form, dictionary=dictionary, progress=progress)
    return localize_words_of_frames(
        frames, observations, form, where.scene, index, gravity=gravity, near=near, options=options, progress=progress
    )


def _by_distance(
    images: Sequence[LoadedImage],
    frames: object,
    observations: Float32[np.ndarray, "features 2"],
    where: Map,
    options: LocalizeOptions,
    codebook: Codebook | None,
    progress: Progress | None,
) -> Localization | NoPose:
    """The answer to frames that are matched by distance, each with the images that it looks like, or with all."""
    from veil.places.poses.sequences.by_distance import Pairs, joined_pairs, localize_frames
    from veil.places.poses.sequences.frames import Frames
    from veil.scene import views_of

    assert isinstance(frames, Frames)
    book = codebook or where.codebook_for(images[0].form)

    def matched(forms: Sequence[Form]) -> Pairs:
        return joined_pairs(frames, [_pairs(form, where, book, codebook, options, progress) for form in forms])

    turned = [mirrored_descriptors(image.form, book) for image in images if not isinstance(image.form, Subsets)]
    known = [form for form in turned if form is not None]
    return localize_frames(
        frames,
        observations,
        matched([image.form for image in images]),
        where.scene.points,
        views=views_of(where.scene),
        options=options,
        mirrored=(lambda: matched(known)) if len(known) == len(images) else None,
    )


def _pairs(
    form: Form,
    where: Map,
    book: Codebook | None,
    codebook: Codebook | None,
    options: LocalizeOptions,
    progress: Progress | None,
) -> tuple[np.ndarray, np.ndarray]:
    """Matches of one frame with the map's images that it looks like, or with all where the map does not rank them."""
    from veil.places.poses.search import MatchedImages

    matched = MatchedImages(form=form, scene=where.scene, codebook=book, options=options, workers=options.workers)
    ranked = ranked_images(where, form, codebook, threads=options.workers)
    names = list(where.scene.images) if ranked is None else list(ranked.names)[: options.retrieved[1 % len(options.retrieved)]]
    matched.match(names, progress)
    return matched.pairs()
