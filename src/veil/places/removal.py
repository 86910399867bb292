"""Removal of images from a map on disk, with a receipt of what went."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from veil.errors import InputError, Remedy
from veil.files.atomic import require_vacant
from veil.files.maps.folders import (
    file_digests,
    foreign_files,
    index_folders,
    model_folders,
    replace_models,
    settle_folder,
    write_models,
)
from veil.files.maps.format import read_map
from veil.json_records.values import Digest, Reasons
from veil.one_line import one_line
from veil.places.maps import NoMap
from veil.places.maps.removal import Removal, named_in, remove_images, require_named
from veil.places.pairs.blocks import KIND
from veil.places.pairs.store import MatchStore, require_folder
from veil.scene import LineMapCheckJson, MapCheckJson
from veil.version import __version__

# Forgets the matches of the images of these names in a store beside the map, and returns the number of pairs that went.
Forget = Callable[[Collection[str]], int]


def forgetting(folder: Path | str) -> Forget:
    """Callable that takes kept matches along when `remove_from_map` removes images, by their names.

    `folder` holds the kept matches. Raises InputError if it is no store of matches, or does not say whose
    matches it keeps.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError(f"{folder} is no folder of matches", remedy=Remedy("give", "remove_from_map.matches"))
    require_folder(folder)
    store = MatchStore(folder, KIND)
    if nameless := store.images - {digest for listed in store.names().values() for digest in listed}:
        raise InputError(
            f"{folder} keeps matches of {len(nameless)} images whose names it does not know",
            remedy=Remedy("renew", "kept matches"),
        )

    def forget(names: Collection[str]) -> int:
        known = store.names()
        return store.forget({digest for name in names for digest in known.get(name, [])})

    return forget


class RemovedImageJson(TypedDict):
    """A removed image and its number of features."""

    name: str
    features: int


class RewrittenFileJson(TypedDict):
    """A file of a map, before and after a removal."""

    file: str
    before: Digest | None
    after: Digest | None


class LeftMapJson(TypedDict):
    """Size of all models after a removal."""

    images: int
    points: int
    observations: int


class _KeptPairsJson(TypedDict, total=False):
    kept_pairs: int


class RemovalReceiptJson(_KeptPairsJson):
    """The receipt of a removal."""

    veil: str
    map: str
    output: str
    in_place: bool
    removed: list[RemovedImageJson]
    left_out: Reasons
    points: int
    features_of_others: int
    dropped: list[str]
    files: list[RewrittenFileJson]
    left: LeftMapJson
    unadjusted: list[str]
    check: MapCheckJson | LineMapCheckJson | None


@dataclass(frozen=True, kw_only=True, eq=False)
class RemovalReceipt:
    """Record of a removal: what went, and which files were written. Its JSON holds no descriptor, position or line.

    - `map`: folder of the map that was given.
    - `output`: folder of the new map; the same one if it was replaced.
    - `removals`: one for each model that is left; a map of positions has one.
    - `features`: by name of each removed image, its features in the map.
    - `left_out`: by name of each other image that went too, the reason.
    - `points`, `features_of_others`: points, and features of other images, that went along.
    - `dropped`: indexes that were made from the old map and are not in the new one.
    - `kept_pairs`: pairs of images whose kept matches were removed; None if no store of matches was named.
    - `before`, `after`: SHA-256 (hex) of every file, by its path in the folder.
    """

    map: Path
    output: Path
    removals: Sequence[Removal]
    features: Mapping[str, int]
    left_out: Mapping[str, str]
    points: int
    features_of_others: int
    dropped: Sequence[str]
    kept_pairs: int | None
    before: Mapping[str, str]
    after: Mapping[str, str]

    __repr__ = one_line

    @property
    def in_place(self) -> bool:
        """Whether the new map took the place of the old one."""
        return self.map == self.output

    def as_json(self) -> RemovalReceiptJson:
        """JSON record of the receipt, as docs/reference/json.md describes it."""
        first = self.removals[0]
        kept: _KeptPairsJson = {} if self.kept_pairs is None else {"kept_pairs": self.kept_pairs}
        return {
            "veil": __version__,
            "map": str(self.map),
            "output": str(self.output),
            "in_place": self.in_place,
            "removed": [{"name": name, "features": count} for name, count in sorted(self.features.items())],
            "left_out": dict(self.left_out),
            "points": self.points,
            "features_of_others": self.features_of_others,
            "dropped": list(self.dropped),
            **kept,
            "files": [
                {"file": name, "before": self.before.get(name), "after": self.after.get(name)}
                for name in sorted({*self.before, *self.after})
            ],
            "left": {
                "images": sum(len(item.scene.images) for item in self.removals),
                "points": sum(len(item.scene.points) for item in self.removals),
                "observations": sum(item.scene.observation_count for item in self.removals),
            },
            "unadjusted": [item.unadjusted for item in self.removals if item.unadjusted is not None],
            "check": None if first.check is None else first.check.as_json(),
        }


def remove_from_map(
    folder: Path | str, names: Collection[str], *, output: Path | str | None = None, matches: Path | str | None = None
) -> RemovalReceipt | NoMap:
    """Remove images from a map, or say why no map would be left; then nothing is written.

    - `folder`: a map that was written.
    - `names`: of images of the map, or of images that its record says were left out.
    - `output`: a new folder; None: the new map takes the place of the old one, at once.
    - `matches`: a folder that keeps matches (`map_images`): those of the images go too, before the new map is written, so that
      what is given again after a crash finds the images still in the map.

    Raises InputError for a name that the map does not know, a folder of other things than matches or of images without names,
    for a file in the map's folder that veil did not make and could not clear, and if the output exists; FileFormatError for a
    damaged map; VeilError if COLMAP fails.
    """
    forget = None if matches is None else forgetting(matches)
    folder = Path(folder).resolve()
    new = None if output is None else Path(output)
    if new is None:
        settle_folder(folder)
    else:
        require_vacant(new)
    if not names:
        raise InputError("nothing to remove; give the name of one image or more")
    scenes = [read_map(model) for model in model_folders(folder)]
    require_named(names, scenes)
    foreign = foreign_files(folder)
    if foreign and new is None:
        raise InputError(
            f"{folder} holds {', '.join(foreign[:3])}, which veil did not make and cannot clear of what is removed",
            remedy=(Remedy("give", "a folder without such files"), Remedy("give", "remove_from_map.output")),
        )
    before, dropped = file_digests(folder), index_folders(folder)
    removals: list[Removal] = []
    features: dict[str, int] = {}
    left_out: dict[str, str] = {}
    points = others = 0
    for number, scene in enumerate(scenes):
        mine = sorted(set(names) & named_in(scene))
        with tempfile.TemporaryDirectory(prefix="veil-remove-") as workdir:
            removal = remove_images(scene, mine, workdir=Path(workdir))
        if isinstance(removal, NoMap):
            if number == 0:  # further models stand beside the first one
                return removal
            gone = {name: len(image.form) for name, image in scene.images.items()}
            features |= {name: gone.get(name, 0) for name in mine}
            left_out |= dict.fromkeys(sorted(set(gone) - set(mine)), removal.reason)
            points, others = points + len(scene.points), others + sum(gone[name] for name in set(gone) - set(mine))
            continue
        removals.append(removal)
        features |= removal.features
        left_out |= removal.left_out
        points, others = points + removal.points, others + removal.features_of_others
    left = [item.scene for item in removals]
    kept_pairs = None if forget is None else forget(sorted({*features, *names}))
    if new is None:
        replace_models(folder, left)
    else:
        write_models(new, left)
    return RemovalReceipt(
        map=folder,
        output=new or folder,
        removals=tuple(removals),
        features=features,
        left_out=left_out,
        points=points,
        features_of_others=others,
        dropped=tuple(dropped),
        kept_pairs=kept_pairs,
        before=before,
        after=file_digests(new or folder),
    )
