"""Several descriptors in `veil evaluate localization`: each form once, with equal numbers of features, in one table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from veil.cli.common import explain, say, say_table, write_json
from veil.cli.remedies import advised
from veil.device.descriptor_books import DescriptorBooks
from veil.errors import InputError
from veil.features import Features
from veil.report.tables import Remark, Table, fixed, names, numbers
from veil_lab.cli.evaluate.descriptors import Descriptors, all_books, bundled_books, usable
from veil_lab.cli.evaluate.poses.localization_trials import EvaluateLocalization, false_queries, folds_of, summed_up, trials_of
from veil_lab.cli.evaluate.scene_arguments import extracted_features, other_places
from veil_lab.files.scenes import ReferenceScene, read_scene
from veil_lab.studies.localization.word_localization_settings import LocalizationRow, settings_of_forms
from veil_lab.studies.matching.equal_numbers import with_equal_numbers

# Features of all photographs, by scene and photograph.
Photographs = dict[str, dict[str, Features]]


def compare(arguments: EvaluateLocalization) -> int:
    """Run the comparison that the arguments of `veil evaluate localization` ask for; exit code 0."""
    if arguments.figure or arguments.elsewhere:
        raise InputError("--figure and --elsewhere belong to tables of one descriptor; name one, or leave them out")
    scenes = [read_scene(folder) for folder in arguments.scenes]
    others = other_places(scenes, arguments.same_place)
    descriptors = usable(arguments.descriptor or ["sift"])
    books = {name: item.for_images_of(arguments.max_features) for name, item in _books(arguments, descriptors).items()}
    features = _features(scenes, descriptors, arguments)
    for name in descriptors.networks:
        books[name].require_others(image.image_digest for images in features[name].values() for image in images.values())
    rows: list[LocalizationRow] = []
    without: list[dict[str, str]] = descriptors.as_json()
    unmapped: list[tuple[str, str, str]] = []
    for scene in scenes:
        for name in descriptors.networks:
            own = _rows(scene, others[scene.name], features[name], books[name], arguments)
            if isinstance(own, str):  # a descriptor that matches too little for a map is a result, too
                without.append({"descriptor": name, "reason": own})
                unmapped.append((scene.name, name, own))
                continue
            rows += own
            if str(arguments.json) != "-":  # what is done is not lost if the rest is interrupted
                write_json(arguments.json, _record(rows, without))
    say_table(arguments, compared_table(rows, unmapped))
    explain(arguments, *thresholds_of(scenes))
    for line in descriptors.lines():
        say(arguments, line)
    write_json(arguments.json, _record(rows, without))
    return 0


def _books(arguments: EvaluateLocalization, descriptors: Descriptors) -> dict[str, DescriptorBooks]:
    """The books of all descriptors; where raw descriptors alone are compared, any stand for those that nothing uses."""
    if {"raw", "lines"} >= set(arguments.forms):
        return {name: bundled_books() for name in descriptors.networks}
    return all_books(arguments, descriptors.networks)


def _features(
    scenes: Sequence[ReferenceScene], descriptors: Descriptors, arguments: EvaluateLocalization
) -> dict[str, Photographs]:
    """Features of all photographs for each descriptor, equal numbers in each photograph."""
    features: dict[str, dict[str, Features]] = {
        name: {
            f"{scene.name}/{photo}": item
            for scene in scenes
            for photo, item in extracted_features(scene, name, max_features=arguments.max_features).items()
        }
        for name in descriptors.networks
    }
    equal = with_equal_numbers(features)
    return {
        name: {
            scene.name: {photo: equal[name][f"{scene.name}/{photo}"] for photo in sorted(scene.pictures)} for scene in scenes
        }
        for name in descriptors.networks
    }


def _rows(
    scene: ReferenceScene,
    others: Sequence[str],
    features: Photographs,
    books: DescriptorBooks,
    arguments: EvaluateLocalization,
) -> list[LocalizationRow] | str:
    """Rows of one scene and descriptor, or the reason why there is no map to localize in."""
    _, epsilon, m = arguments.default
    settings = settings_of_forms(
        words=len(books.codebook), epsilon=epsilon, m=m, dictionary=books.name, iterations=arguments.word_samples
    )
    settings = [item for item in settings if item.form in arguments.forms]
    try:
        folds = folds_of(scene, features[scene.name], arguments)
    except InputError as error:
        return advised(error)
    strangers = false_queries(others, features, folds, arguments)
    named = {books.name: books.codebook}
    trials = list(trials_of(scene.name, folds, settings, strangers, named, books, arguments))
    return summed_up(scene, features[scene.name], settings, trials)


def _record(rows: Sequence[LocalizationRow], without: Sequence[Mapping[str, str]]) -> dict:
    """The JSON record of the comparison."""
    return {"rows": [item.as_json() for item in rows], "retrieval": [], "left_out": list(without)}


def thresholds_of(scenes: Sequence[ReferenceScene]) -> Iterator[str]:
    """What the columns of localized queries mean."""
    if any(scene.metric for scene in scenes):
        yield "tight, mid, wide: within 0.25 m and 2 deg, 0.5 m and 5 deg, 5 m and 10 deg"
    if not all(scene.metric for scene in scenes):
        yield "without a metric reference: within 1 % of the cameras' extent and 2 deg, 2 % and 5 deg, 20 % and 10 deg"


def compared_table(rows: Sequence[LocalizationRow], without: Sequence[tuple[str, str, str]]) -> Table:
    """The table of descriptors and forms, each scene alone and then all together.

    `without` holds scene, descriptor and reason where there is no map.
    """
    counted = numbers("tight", "mid", "wide", "position, median", "inliers, median", "false poses")
    remarks = [Remark(labels=(scene, name, ""), text=f"no map: {reason}") for scene, name, reason in without]
    return Table(
        columns=[*names("scene", "descriptor", "form"), *counted],
        rows=[*(_cells(row.scene, [row]) for row in rows), *remarks, *_together(rows)],
        labels=3,
    )


def _cells(scene: str, rows: Sequence[LocalizationRow]) -> tuple[str, ...]:
    """Queries localized within each threshold and false queries accepted, of so many, over some rows."""
    first, queries = rows[0], sum(row.queries for row in rows)
    counts = [
        f"{sum(round(list(row.localized.values())[index] * row.queries) for row in rows)}/{queries}" for index in range(3)
    ]
    alone = len(rows) == 1
    false = f"{sum(row.false_accepts for row in rows)}/{sum(row.false_queries for row in rows)}"
    return (
        scene,
        first.descriptor,
        first.setting.form,
        *counts,
        fixed(first.median_position if alone else None, 4),
        fixed(first.median_inliers if alone else None, 0),
        false,
    )


def _together(rows: Sequence[LocalizationRow]) -> Iterator[tuple[str, ...]]:
    """Rows of all scenes together, where there are several, of the descriptors that have a map of each."""
    scenes = {row.scene for row in rows}
    if len(scenes) < 2:
        return
    for key in dict.fromkeys((row.descriptor, row.setting.form) for row in rows):
        own = [row for row in rows if (row.descriptor, row.setting.form) == key]
        if {row.scene for row in own} == scenes:
            yield _cells("all", own)
