"""Ways of lifting in `veil evaluate localization`: maps and localization by lifting and m, in two tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from veil.cli.common import Bar, explain, say, say_table, write_json
from veil.errors import InputError
from veil.features import Features
from veil.matching import match_pairs
from veil.matching.pairs import all_pairs
from veil.mechanisms.public import publish
from veil.report.tables import Table, fixed, names, numbers
from veil.trials.line_maps import MappableScene
from veil_lab.cli.evaluate.descriptors import all_books
from veil_lab.cli.evaluate.poses.localization_table import thresholds_of
from veil_lab.cli.evaluate.poses.localization_trials import (
    EvaluateLocalization,
    extent_of,
    false_queries,
    folds_of,
    summed_up,
    trials_of,
)
from veil_lab.cli.evaluate.scene_arguments import extracted_features, other_places
from veil_lab.files.scenes import ReferenceScene, read_scene
from veil_lab.studies.localization.word_localization_settings import LocalizationRow
from veil_lab.studies.mapping.by_lifting import LiftedMap, LiftingRow, lifted_maps, lifting_row, settings_of_liftings

LEGEND = (
    "Maps: all photographs are lifted. Queries: one is lifted, its map is of raw features. All forms have the same features.",
    "Positions are percent of the extent of the reference's cameras: median and largest of a map, median of queries.",
    "px: median reprojection error. All scenes: sums, and means over scenes of px, of positions of queries, and of inliers.",
)


def compare_liftings(arguments: EvaluateLocalization) -> int:
    """Run the comparison by lifting that the arguments of `veil evaluate localization` ask for; exit code 0."""
    if arguments.figure or arguments.elsewhere or list(arguments.descriptor or ["sift"]) != ["sift"]:
        raise InputError("--figure, --elsewhere and --descriptor belong to other tables than --lifting; leave them out")
    scenes = [read_scene(folder) for folder in arguments.scenes]
    others = other_places(scenes, arguments.same_place)
    books = all_books(arguments, ["sift"])["sift"]
    features = {scene.name: extracted_features(scene, max_features=arguments.max_features) for scene in scenes}
    first = next(iter(next(iter(features.values())).values()))
    settings = settings_of_liftings(arguments.lifting or (), arguments.m, first)
    maps: dict[str, list[LiftedMap]] = {}
    queries: dict[str, list[LocalizationRow]] = {}
    for scene in scenes:
        folds = folds_of(scene, features[scene.name], arguments)
        strangers = false_queries(others[scene.name], features, folds, arguments)
        trials = list(trials_of(scene.name, folds, settings, strangers, {}, books, arguments))
        queries[scene.name] = summed_up(scene, features[scene.name], settings, trials)
        with Bar(f"{scene.name}: maps by lifting") as bar:
            subject = _subject(scene, features[scene.name], arguments.workers)
            maps[scene.name] = list(
                lifted_maps(
                    subject,
                    settings,
                    codebook=books.codebook,
                    decoys=books.decoys,
                    workers=arguments.workers,
                    progress=bar,
                )
            )
        if str(arguments.json) != "-":  # what is done is not lost if the rest is interrupted
            write_json(arguments.json, _record(maps, queries))
    by_scene, together = _rows(scenes, maps, queries)
    for rows in (together, by_scene) if len(scenes) > 1 else (by_scene,):
        for table in (lifted_map_table(rows), lifted_query_table(rows)):
            say_table(arguments, table)
            say(arguments, "")
    explain(arguments, *LEGEND, *thresholds_of(scenes))
    write_json(arguments.json, _record(maps, queries))
    return 0


def _subject(scene: ReferenceScene, features: Mapping[str, Features], workers: int) -> MappableScene:
    """The scene as maps are made of it, with matches of raw features; no map here needs gravity."""
    forms = {name: publish(item) for name, item in features.items()}
    return MappableScene(
        name=scene.name,
        features=features,
        matches=match_pairs(forms, all_pairs(sorted(forms)), workers=workers),
        reference=scene.cam_from_world,
        gravity={},
        gravity_is_measured=False,
    )


def _record(maps: Mapping[str, Sequence[LiftedMap]], queries: Mapping[str, Sequence[LocalizationRow]]) -> dict:
    """The JSON record of the comparison."""
    return {
        "rows": [row.as_json() for rows in queries.values() for row in rows],
        "retrieval": [],
        "left_out": [],
        "maps": [item.as_json() for items in maps.values() for item in items],
    }


def _rows(
    scenes: Sequence[ReferenceScene], maps: Mapping[str, Sequence[LiftedMap]], queries: Mapping[str, Sequence[LocalizationRow]]
) -> tuple[list[LiftingRow], list[LiftingRow]]:
    """Rows of each scene alone, and of all scenes together, by the settings in their order."""
    extents = [extent_of(scene.cam_from_world) for scene in scenes]
    mapped, asked = (list(zip(*(results[scene.name] for scene in scenes), strict=True)) for results in (maps, queries))
    alone = [
        lifting_row(scene.name, [one], [row], [extent])
        for scene, extent in zip(scenes, extents, strict=True)
        for one, row in zip(maps[scene.name], queries[scene.name], strict=True)
    ]
    return alone, [lifting_row("all", items, rows, extents) for items, rows in zip(mapped, asked, strict=True)]


def lifted_map_table(rows: Sequence[LiftingRow]) -> Table:
    """The table of maps, as [D21] Table 2."""
    return Table(
        columns=[*names("scene", "lifting"), *numbers("m", "registered", "points", "track", "px", "position, %", "largest, %")],
        rows=[
            (
                *_labels(row),
                f"{row.registered} of {row.total}",
                f"{row.points:,}",
                fixed(row.track_length, 2),
                fixed(row.reprojection_px, 2),
                *(("none", "none") if row.position is None else (fixed(100 * error, 2) for error in row.position)),
            )
            for row in rows
        ],
        labels=3,
    )


def lifted_query_table(rows: Sequence[LiftingRow]) -> Table:
    """The table of localization, as [D21] Table 3."""
    return Table(
        columns=[*names("scene", "lifting"), *numbers("m", "queries", "tight", "mid", "wide", "position, %", "inliers")],
        rows=[
            (
                *_labels(row),
                str(row.queries),
                *map(str, row.localized),
                "none" if row.query_position is None else fixed(100 * row.query_position, 2),
                fixed(row.inliers, 0),
            )
            for row in rows
        ],
        labels=3,
    )


def _labels(row: LiftingRow) -> tuple[str, str, str]:
    """The cells that name a row."""
    return row.scene, row.setting.lifting or "none", str(row.setting.m or 0)
