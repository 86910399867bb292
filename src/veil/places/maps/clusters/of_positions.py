"""Maps of many images: the view graph is cut into clusters, these are mapped apart, joined, and adjusted together.

The answer is that of `veil.places.maps.points.build_map`: one map, or several with the reason why they do not join, or none
(docs/theory/scale.md, "Clusters and their joining").
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from jaxtyping import Float64

from veil.errors import InputError
from veil.geometry.camera import GUESS, Camera, as_colmap
from veil.matching.neighbors import Matches
from veil.places.maps.agreement import explained_shares, groups_that_agree, seen_by_map, turned_pairs
from veil.places.maps.check import checked, doubtful_images
from veil.places.maps.clusters.joined_maps import ClusteredMap, Group, RunAll, answers_of, cut, joined, one_after_another
from veil.places.maps.clusters.pieces import Piece, merged, piece_of
from veil.places.maps.clusters.repeated import doubted_pairs
from veil.places.maps.clusters.view_graph import Cluster, ClusterOptions
from veil.places.maps.colmap import Colmap, Stopped
from veil.places.maps.colmap.adjuster import Adjuster
from veil.places.maps.focal import contradicted_focals, departed_cameras, known_before, known_to
from veil.places.maps.images import MapImage, NoMap, Pair, impossible, more_matches
from veil.places.maps.options import ADJUSTMENT, IMAGES_AT_ONCE, MIN_ANGLE_DEG, MapOptions
from veil.places.maps.points import build_map
from veil.places.maps.scenes import read_model, restricted, scene_of
from veil.places.maps.verification import Verification, VerifiedPair
from veil.progress import Progress
from veil.scene import Scene

# How often what no map holds is cut and mapped again.
ROUNDS = 5
# Limits in pixels of the first adjustment of a joined map, one after another.
FIRST_PX = (16.0, 4.0)


@dataclass(frozen=True, kw_only=True, eq=False)
class ClusterTask:
    """Images of one cluster with their matches, to map by `map_cluster`; `workdir` is a folder that does not exist yet."""

    images: Mapping[str, MapImage]
    matches: Mapping[Pair, Matches]
    options: MapOptions
    workdir: Path


def map_cluster(task: ClusterTask) -> Scene | NoMap:
    """Map of one cluster by the mapper of points, or why there is none."""
    task.workdir.mkdir(parents=True)
    return build_map(task.images, task.matches, workdir=task.workdir, options=task.options)


def map_in_clusters(
    images: Mapping[str, MapImage],
    matches: Mapping[Pair, Matches],
    *,
    workdir: Path,
    options: MapOptions | None = None,
    clusters: ClusterOptions | None = None,
    gravity: Mapping[str, Float64[np.ndarray, "3"]] | None = None,
    run_all: RunAll[ClusterTask, Scene | NoMap] = one_after_another,
    progress: Progress | None = None,
) -> ClusteredMap[Scene] | NoMap:
    """Maps of many images from their matches, by clusters, or the reason why there is none.

    Arguments are those of `veil.places.maps.points.build_map`. `clusters` says how large clusters are and how they overlap.
    `run_all(task, items)` gives (position, result) of every item in any order, and may run them in other processes that see
    `workdir`: `map` of an engine fits. `progress` is called with the numbers of mapped clusters and of all. Images that fit
    into one cluster are mapped uncut, and those that are not in that map, or if it is refused, apart.
    Raises InputError for fewer than two images, VeilError if COLMAP fails.
    """
    options, clusters = options or MapOptions(), clusters or ClusterOptions()
    if len(images) < 2:
        raise InputError(f"a map needs at least two images, got {len(images)}")
    job = _Job(matches, options, clusters, gravity or {}, run_all, progress)
    if len(images) > clusters.size:
        return _several(images, None, job, workdir)
    whole = build_map(images, matches, workdir=workdir, options=options, gravity=gravity, progress=progress)
    if isinstance(whole, NoMap) and whole.check is None:
        return whole
    return _several(images, whole, job, workdir)


def _several(
    images: Mapping[str, MapImage], whole: Scene | NoMap | None, job: _Job, workdir: Path
) -> ClusteredMap[Scene] | NoMap:
    """Maps of all images: `whole`, if they were mapped together, and maps of what is left, as long as any come of it.

    A cluster gives one map even where its images show several places, so that what is left of it is tried again.
    """
    scenes = [whole] if isinstance(whole, Scene) else []
    reasons = [f"all images together gave no map: {whole.reason}"] if isinstance(whole, NoMap) else []
    least, rounds = min(job.options.min_model_images, len(images)), 0
    first: ClusteredMap[Scene] | NoMap | None = None
    verified: set[Pair] = set()
    while rounds < ROUNDS:
        mapped = {name for scene in scenes for name in scene.images}
        rest = {name: image for name, image in images.items() if name not in mapped}
        if len(rest) < least:
            break
        folder = workdir if whole is None and not rounds else workdir / f"rest-{rounds + 1}"
        folder.mkdir(exist_ok=True)
        clustered, pairs = job.cut(rest, folder, least_parts=2 if isinstance(whole, NoMap) and not rounds else 1)
        first, rounds = first or clustered, rounds + 1
        verified |= pairs
        if isinstance(clustered, NoMap):
            break
        scenes += clustered.maps
        reasons += (
            clustered.reasons if rounds == 1 else [f"of the images that were left, {reason}" for reason in clustered.reasons]
        )
    if not scenes:
        return whole if isinstance(whole, NoMap) else first if isinstance(first, NoMap) else NoMap("no cluster gave a map")
    scenes.sort(key=lambda scene: (-len(scene.images), min(scene.images)))
    scenes[0] = _told(scenes, whole)
    reasons += _apart(scenes, verified, None if whole is None else frozenset(_mapped_by(whole)))
    clusters = first.clusters if isinstance(first, ClusteredMap) and whole is None else ()
    return ClusteredMap(maps=tuple(scenes), reasons=tuple(reasons), clusters=clusters)


def _mapped_by(whole: Scene | NoMap) -> Iterable[str]:
    """Names of the images of a map, none where there is none."""
    return whole.images if isinstance(whole, Scene) else ()


def _told(scenes: Sequence[Scene], whole: Scene | NoMap | None) -> Scene:
    """The first map, whose check names the images that are in none, as far as it or the map of all knows why."""
    first = scenes[0]
    if first.check is None:
        return first
    mapped = {name for scene in scenes for name in scene.images}
    known = {**({} if whole is None or whole.check is None else whole.check.left_out), **first.check.left_out}
    left_out = {name: reason for name, reason in sorted(known.items()) if name not in mapped}
    return replace(first, check=replace(first.check, left_out=left_out))


def _apart(scenes: Sequence[Scene], verified: Set[Pair], whole: frozenset[str] | None) -> list[str]:
    """Sentences on why models do not join the largest one, of those of which it is known.

    The map of all images, `whole`, took in what it could; between others no pair may be verified.
    """
    largest, sentences = set(scenes[0].images), []
    for number, scene in enumerate(scenes[1:], 2):
        names = set(scene.images)
        if whole and whole in (largest, names):
            sentences.append(f"none of the images of model {number} ({len(names)}) could be added to the largest one")
        elif not any((a in largest and b in names) or (b in largest and a in names) for a, b in verified):
            sentences.append(f"no pair of images joins model {number} ({len(names)} images) to the largest one")
    return sentences


@dataclass(frozen=True, eq=False)
class _Job:
    """Input of maps of any of the images, as `map_in_clusters` takes it."""

    matches: Mapping[Pair, Matches]
    options: MapOptions
    clusters: ClusterOptions
    gravity: Mapping[str, Float64[np.ndarray, "3"]]
    run_all: RunAll[ClusterTask, Scene | NoMap]
    progress: Progress | None

    def cut(
        self, images: Mapping[str, MapImage], workdir: Path, least_parts: int = 1
    ) -> tuple[ClusteredMap[Scene] | NoMap, Set[Pair]]:
        """Maps of some images by clusters, and the verified pairs; images without a path of these are mapped apart.

        Nothing is mapped if there are fewer than `least_parts` clusters and no pair is doubted.
        """
        left_out = impossible(images)
        images = {name: image for name, image in images.items() if name not in left_out}
        matches = {pair: matched for pair, matched in self.matches.items() if pair[0] in images and pair[1] in images}
        with Colmap(self.options.limits) as colmap:
            verification = Verification(images, self.options, workdir, colmap)
            stopped = verification.run(matches)
            if stopped is not None:
                return NoMap(f"COLMAP's verification was stopped: {stopped.reason}", left_out), frozenset()
            doubted = doubted_pairs(images, verification.pairs)
            verification.forget(doubted)
            counts = {pair: len(matched.inliers) for pair, matched in verification.pairs.items()}
            if not counts:
                return NoMap(
                    f"none of {len(matches)} pairs of images is verified", left_out, remedy=more_matches(images)
                ), frozenset()
            parts = cut(counts, self.clusters, min(self.options.min_model_images, len(images)))
            if len(parts) < least_parts and not doubted:
                return NoMap("all images hang together", left_out), counts.keys()
            tasks = [_task(k, part, images, matches, counts, self.options, workdir) for k, part in enumerate(parts)]
            answers = answers_of(self.run_all, map_cluster, tasks, self.progress)
            work = _ClusterScenes(images, self.options, workdir, colmap, verification, self.gravity, left_out)
            return joined(work, parts, answers), counts.keys()


def _task(
    number: int,
    part: Cluster,
    images: Mapping[str, MapImage],
    matches: Mapping[Pair, Matches],
    counts: Mapping[Pair, int],
    options: MapOptions,
    workdir: Path,
) -> ClusterTask:
    own: dict[Pair, Matches] = {}
    for pair, matched in matches.items():
        if (pair in counts or pair[::-1] in counts) and {*pair} <= part.names:
            own[pair] = matched
    return ClusterTask(
        images={name: images[name] for name in sorted(part.names)},
        matches=own,
        options=options,
        workdir=workdir / f"cluster-{number + 1}",
    )


@dataclass(frozen=True, eq=False)
class _ClusterScenes:
    """Maps of positions of clusters, to be joined: what they were made from."""

    images: Mapping[str, MapImage]
    options: MapOptions
    workdir: Path
    colmap: Colmap
    verification: Verification
    gravity: Mapping[str, Float64[np.ndarray, "3"]]
    left_out: Mapping[str, str]

    @property
    def least(self) -> int:
        """Number of images that a map must have."""
        return min(self.options.min_model_images, len(self.images))

    def names(self, model: Scene) -> Collection[str]:
        """Names of the images of a map."""
        return model.images

    def piece(self, model: Scene) -> Piece:
        """The map as a piece, by the numbers of all features of its images."""
        return piece_of(model, {name: self.images[name].keypoints for name in model.images})

    def apart(self, maps: list[Scene]) -> list[Scene]:
        """The maps as they are: each image has one home, and so one map."""
        return maps

    def together(self, group: Group[Scene], reasons: list[str]) -> list[Scene]:
        """Checked maps of a group: one, or more where its images contradict each other."""
        own = {name: k for name, k in group.home.items() if k in group.placed}
        if len(own) < self.least:
            return []
        if len(group.placed) == 1:
            scene = restricted(group.maps[next(iter(group.placed))], frozenset(own))
        else:
            cameras = {name: group.maps[k].images[name].camera for name, k in own.items()}
            scene = self._adjusted(group.number, merged(group.placed, own), cameras, reasons)
        return [] if scene is None else self._models(scene, {n: _known_to(group.maps[k]) for n, k in own.items()}, reasons)

    def _models(self, scene: Scene, known: Mapping[str, float], reasons: list[str]) -> list[Scene]:
        """Checked maps of the groups of images of a scene that stay together; `known` are focal lengths by its clusters."""
        pairs = seen_by_map(scene, self.images, self.verification.pairs, self.options.seed)
        groups = groups_that_agree(
            scene.images, explained_shares(scene, self.images, pairs), pairs, turned=turned_pairs(scene, pairs)
        )
        scenes = []
        for group in groups:
            part = scene if len(groups) == 1 else restricted(scene, group)
            if len(group) < self.least or part is None:
                continue
            left_out = dict(self.left_out)
            if len(groups) > 1:
                left_out |= dict.fromkeys(sorted(set(scene.images) - group), "it contradicts its pairs with the others")
            made = self._checked(part, set(scene.images), pairs, left_out, known)
            if isinstance(made, Scene):
                scenes.append(made)
            else:
                reasons.append(f"a joined map of {len(group)} images cannot be trusted: {'; '.join(made)}")
        if len(scenes) > 1:
            reasons.append("images of one group of clusters contradict each other, so that it gives several maps")
        return scenes

    def _checked(
        self,
        scene: Scene,
        images: Set[str],
        pairs: Mapping[Pair, VerifiedPair],
        left_out: Mapping[str, str],
        known: Mapping[str, float],
    ) -> Scene | list[str]:
        """A joined map of some of the `images`, without doubtful ones, and its check; or the doubts."""
        shares = explained_shares(scene, self.images, pairs)
        doubtful = doubtful_images(scene, shares, pairs, self._known(scene))
        if doubtful:
            rest = frozenset(scene.images) - set(doubtful)
            smaller = restricted(scene, rest) if len(rest) >= self.least else None
            if smaller is None:
                return [f"{name}: {reason}" for name, reason in sorted(doubtful.items())[:1]]
            scene, shares, left_out = smaller, explained_shares(smaller, self.images, pairs), {**left_out, **doubtful}
        before = self._known(scene)
        check = checked(scene, shares, images, pairs, self.gravity, left_out, known=before)
        # What the map of a cluster doubts is known no better than it says.
        deviation = known_to(scene, {name: max(before[name], known[name]) for name in before})
        contradicted = contradicted_focals(departed_cameras(self.images, scene.images), self.images, scene.images)
        check = replace(check, focal_deviation=deviation, contradicted_focals=contradicted)
        return check.doubts or replace(scene, check=check)

    def _known(self, scene: Scene) -> dict[str, float]:
        """How well the focal length of each image was known; one that was freed in the map of a cluster is a guess."""
        departed = departed_cameras(self.images, scene.images)
        return known_before(scene, self.images) | dict.fromkeys(departed, GUESS.deviation)

    def _adjusted(self, count: int, piece: Piece, cameras: Mapping[str, Camera], reasons: list[str]) -> Scene | None:
        """Scene of a merged piece after adjustment, more points from all verified matches, and adjustment again."""
        name = f"joined-{count + 1}"
        folders = [self.workdir / f"{name}-{step}" for step in ("start", "first", "more")]
        for folder in folders:
            folder.mkdir()
        write_model(
            folders[0],
            piece,
            images=self.images,
            cameras=cameras,
            database=self.verification.database,
            image_ids=self.verification.image_ids,
        )
        held = self.verification.constant_cameras
        adjust = {
            "do": "adjust",
            "constant_cameras": sorted(held),
            "options": dict(ADJUSTMENT),
            "min_angle_deg": MIN_ANGLE_DEG,
            "limits_px": FIRST_PX,
        }
        complete = {"do": "complete", "database": str(self.verification.database), "seed": self.options.seed}
        for request, source, output in zip((adjust, complete), folders, folders[1:], strict=False):
            asked = request | {"model": str(source), "output": str(output)}
            answer = self.colmap.run(asked, work=max(1.0, len(cameras) / IMAGES_AT_ONCE))
            if isinstance(answer, Stopped):
                reasons.append(f"the adjustment of {len(cameras)} joined images was stopped: {answer.reason}")
                return None
        model = read_model(folders[-1])
        if not model.num_points3D():
            return None
        scene, database = scene_of(model, self.images), self.verification.database
        adjuster = Adjuster(images=self.images, workdir=self.workdir, colmap=self.colmap, database=database)
        last = adjuster.adjusted(folders[-1], scene, held, f"{name}-last")
        return scene if last is None else last[1]


def write_model(
    folder: Path,
    piece: Piece,
    *,
    images: Mapping[str, MapImage],
    cameras: Mapping[str, Camera],
    database: Path,
    image_ids: Mapping[str, int],
) -> None:
    """Write a piece as COLMAP's model into an existing folder, in the numbering of the database.

    `images` are what was mapped, `cameras` those that maps of parts refined, both by image. Images that share a camera in the
    database get the median of its refined parameters. Points at which no image has a feature are not written.
    """
    from veil.colmap import pycolmap

    names = sorted(piece.cam_from_world)
    opened = pycolmap.Database.open(database)
    try:
        camera_of = {name: opened.read_image(image_ids[name]).camera_id for name in names}
    finally:
        opened.close()
    model = pycolmap.Reconstruction()
    for camera_id in sorted(set(camera_of.values())):
        mine = [cameras[name] for name in names if camera_of[name] == camera_id]
        middle = np.median([camera.params for camera in mine], axis=0)
        colmap = as_colmap(replace(mine[0], params=tuple(float(value) for value in middle)))
        colmap.camera_id = camera_id
        model.add_camera_with_trivial_rig(colmap)
    for name in names:
        image = pycolmap.Image(
            name=name,
            keypoints=np.asarray(images[name].keypoints, dtype=np.float64),
            camera_id=camera_of[name],
            image_id=image_ids[name],
        )
        pose = piece.cam_from_world[name]
        rigid = pycolmap.Rigid3d(np.column_stack([pose.rotation, pose.translation]))
        model.add_image_with_trivial_frame(image, rigid)
    tracks: list[list[tuple[int, int]]] = [[] for _ in piece.points]
    for name in names:
        for feature, row in zip(piece.features[name].tolist(), piece.point_rows[name].tolist(), strict=True):
            tracks[row].append((image_ids[name], feature))
    for point, track in zip(piece.points, tracks, strict=True):
        if track:
            model.add_point3D(point, pycolmap.Track([pycolmap.TrackElement(*element) for element in track]))
    model.write(folder)


def _known_to(scene: Scene) -> float:
    """Relative standard deviation of the focal lengths of a map, as its check says; 0 if it says nothing."""
    return (scene.check.focal_deviation if scene.check else None) or 0.0
