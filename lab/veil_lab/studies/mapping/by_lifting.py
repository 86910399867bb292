"""Maps and localization from lifted features by way of lifting and m: the protocol of Dusmanu et al. 2021, Tables 2 and 3.

For a map all photographs of a scene are lifted, and subspaces are matched with subspaces (Table 2). For localization only
queries are lifted: each photograph is held out of a map of raw features once, and points are matched with subspaces (Table 3).
All forms have the same features. Releases of the default profile would have fewer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np

from veil.codebooks.codebook import Codebook
from veil.features import Features
from veil.matching import match_pairs
from veil.matching.pairs import all_pairs
from veil.mechanisms.profile import Profile, Strategy
from veil.mechanisms.subspaces import lift
from veil.progress import Progress
from veil.randomness import seeded
from veil.trials.line_maps import MappableScene
from veil.trials.reconstruction_run import Run
from veil_lab.studies.localization.word_localization_settings import LocalizationRow, Setting
from veil_lab.studies.mapping.reconstruction import map_checked

# The default profile of veil at another m, or a strategy of the profile `paper`.
Lifting = Literal["hardened"] | Strategy
LIFTINGS: tuple[str, ...] = ("hardened", *get_args(Strategy))


def settings_of_liftings(liftings: Sequence[Lifting], dims: Sequence[int], features: Features) -> list[Setting]:
    """Settings of raw features, and of subspaces of each lifting and each m of `dims`.

    `features` tell whether the default profile protects 8-bit descriptors. Raises RangeError as `Profile` does.
    """
    hardened = Profile.hardened(quantized=features.is_quantized)
    profiles = [
        replace(hardened, m=m) if lifting == "hardened" else Profile.paper(m, lifting)
        for lifting in dict.fromkeys(liftings)
        for m in dims
    ]
    return [Setting(form="raw"), *(Setting(form="subspaces", m=profile.m, profile=profile) for profile in profiles)]


@dataclass(frozen=True, kw_only=True, eq=False)
class LiftedMap:
    """A map of one scene of which all photographs were sent as `setting` says, and its errors against reference cameras.

    `registered` of `total` photographs have a pose; `reason` says why there is no map. `reprojection_px` is the median over the
    `observations` of all `points` (None without a map). `errors` are position errors of the registered photographs, as shares
    of the extent of the reference's cameras, and `turned_deg` their rotation errors.
    """

    scene: str
    setting: Setting
    registered: int
    total: int
    points: int
    observations: int
    reprojection_px: float | None
    errors: tuple[float, ...]
    turned_deg: tuple[float, ...]
    reason: str | None

    def as_json(self) -> dict[str, object]:
        """The stable record of lab/reference/json.md."""
        return {
            "scene": self.scene,
            "lifting": self.setting.lifting,
            "m": self.setting.m,
            "registered": self.registered,
            "total": self.total,
            "points": self.points,
            "track_length": self.observations / self.points if self.points else None,
            "reprojection_px": self.reprojection_px,
            "position_shares": list(self.errors),
            "rotation_deg": list(self.turned_deg),
            "reason": self.reason,
        }


def lifted_maps(
    subject: MappableScene,
    settings: Sequence[Setting],
    *,
    codebook: Codebook,
    decoys: Codebook,
    workers: int = 1,
    progress: Progress | None = None,
) -> Iterator[LiftedMap]:
    """The map of a scene in each setting. `codebook` has centroids and PCA, `decoys` is the pool of real descriptors.

    `workers` are pairs matched at a time; `progress` is called with the numbers of maps done and of all.
    """
    for done, setting in enumerate(settings):
        yield _mapped(subject, setting, codebook, decoys, workers)
        if progress is not None:
            progress(done + 1, len(settings))


def _mapped(subject: MappableScene, setting: Setting, codebook: Codebook, decoys: Codebook, workers: int) -> LiftedMap:
    """The map of one setting."""
    profile = setting.profile
    if profile is None:
        run = map_checked(subject)
    else:
        forms = {
            name: lift(
                item,
                profile=profile,
                compression=codebook.compression,
                decoys=decoys if profile.decoys == "descriptors" else codebook,
                randomness=seeded(f"by lifting {subject.name}"),
            ).form
            for name, item in subject.features.items()
        }
        run = map_checked(subject, forms=forms, matches=match_pairs(forms, all_pairs(sorted(forms)), workers=workers))
    return _told(run, setting)


def _told(run: Run, setting: Setting) -> LiftedMap:
    """The row of one map."""
    extent = run.extent or float("nan")
    return LiftedMap(
        scene=run.scene,
        setting=setting,
        registered=run.registered,
        total=run.total,
        points=len(run.points),
        observations=run.observations,
        reprojection_px=run.point_reprojection_px,
        errors=tuple(position / extent for position, _ in run.errors.values()),
        turned_deg=tuple(turned for _, turned in run.errors.values()),
        reason=run.reason,
    )


@dataclass(frozen=True, kw_only=True)
class LiftingRow:
    """Results of one setting on a scene, or on "all" together, as a row of [D21] Tables 2 and 3.

    Of the maps: photographs `registered` of all, `points`, the mean `track_length`, the mean over scenes of the median
    `reprojection_px`, and the median and largest position error of registered photographs as shares of the extent. Of
    `queries`: numbers `localized` within each of three thresholds, and means over scenes of the median position error, as a
    share of the extent, and of the median number of inliers. None where nothing has a value.
    """

    scene: str
    setting: Setting
    registered: int
    total: int
    points: int
    track_length: float | None
    reprojection_px: float | None
    position: tuple[float, float] | None
    queries: int
    localized: tuple[int, ...]
    query_position: float | None
    inliers: float


def lifting_row(
    name: str, maps: Sequence[LiftedMap], queries: Sequence[LocalizationRow], extents: Sequence[float]
) -> LiftingRow:
    """The row `name` of one setting: of each scene a map, the results of queries, and the extent of the reference's cameras."""
    errors = [error for item in maps for error in item.errors]
    points, observations = sum(item.points for item in maps), sum(item.observations for item in maps)
    shares = [
        row.median_position / extent for row, extent in zip(queries, extents, strict=True) if row.median_position is not None
    ]
    counts = [[round(share * row.queries) for share in row.localized.values()] for row in queries]
    return LiftingRow(
        scene=name,
        setting=maps[0].setting,
        registered=sum(item.registered for item in maps),
        total=sum(item.total for item in maps),
        points=points,
        track_length=observations / points if points else None,
        reprojection_px=_mean([item.reprojection_px for item in maps if item.reprojection_px is not None]),
        position=(float(np.median(errors)), max(errors)) if errors else None,
        queries=sum(row.queries for row in queries),
        localized=tuple(sum(column) for column in zip(*counts, strict=True)),
        query_position=_mean(shares),
        inliers=float(np.mean([row.median_inliers for row in queries])),
    )


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None
