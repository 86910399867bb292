"""`veil evaluate localization`: held-out queries in every form on public maps (Pittaluga and Zhuang 2023, Tables 2 and 3)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from veil.cli.common import (
    Commands,
    quiet_colmap,
    report,
    say,
    say_table,
    write_json,
)
from veil.cli.records import add_record_command
from veil.cli.server.index import read_dictionary
from veil.errors import InputError
from veil.ldp.rounding import outward
from veil.report.tables import Name, Number, Table, fixed, names, numbers, percent
from veil_lab.cli.evaluate.descriptors import all_books, bundled_books, usable
from veil_lab.cli.evaluate.poses.localization_lifting import compare_liftings
from veil_lab.cli.evaluate.poses.localization_table import compare
from veil_lab.cli.evaluate.poses.localization_trials import EvaluateLocalization, false_queries, folds_of, summed_up, trials_of
from veil_lab.cli.evaluate.scene_arguments import (
    extracted_features,
    other_places,
)
from veil_lab.files.scenes import read_scene
from veil_lab.report.localization import draw_localization
from veil_lab.studies.localization.false_acceptance import Fold
from veil_lab.studies.localization.map_dictionaries import mapped, most_words
from veil_lab.studies.localization.retrieval import Recall, recalls
from veil_lab.studies.localization.word_localization_settings import LocalizationRow, Setting, Tables

EXAMPLES = """\
  veil evaluate localization strecha/fountain-P11 strecha/castle-P19 --json words.json --figure words.png
  veil evaluate localization fox/ --word-count 2048 4096 --default 4096,10,2 --elsewhere bundled
  veil evaluate localization strecha/fountain-P11 --forms raw --descriptor aliked --max-features 2000
  veil evaluate localization strecha/* --lifting hardened sub-hybrid --m 2 4 8 16 --max-features 600
  veil evaluate localization strecha/* --descriptor sift hardtfeat aliked xfeat --decoys-from photos/ --max-features 1000
"""


def register(protocols: Commands) -> None:
    """Add `veil evaluate localization` to the subparsers `protocols`."""
    summary = "held-out queries raw, in subspaces, in words, and with lines"
    add_record_command(protocols, "localization", summary, EXAMPLES, EvaluateLocalization, _localization)


def _localization(arguments: EvaluateLocalization) -> int:
    """Run the command; exit code 0."""
    quiet_colmap()
    if arguments.lifting:
        return compare_liftings(arguments)
    if len(arguments.descriptor or ()) > 1:
        return compare(arguments)
    descriptor = next(iter(usable(arguments.descriptor or ["sift"]).networks))
    elsewhere = arguments.elsewhere or (["bundled"] if descriptor == "sift" else [])
    settings = Tables(
        words=arguments.word_count,
        epsilons=arguments.epsilon,
        sizes=arguments.m,
        default=arguments.default,
        most=arguments.word_samples,
        elsewhere=tuple(elsewhere),
    ).settings()
    settings = [item for item in settings if item.form in arguments.forms]
    with_words = any(setting.uses_words for setting in settings)
    if arguments.figure and not with_words:
        raise InputError("the figure compares words with the rest; add words to --forms, or leave out --figure")
    scenes = [read_scene(folder) for folder in arguments.scenes]
    others = other_places(scenes, arguments.same_place)
    lifted = any(setting.form == "subspaces" for setting in settings)
    books = all_books(arguments, [descriptor])[descriptor] if lifted else bundled_books()
    features = {scene.name: extracted_features(scene, descriptor, max_features=arguments.max_features) for scene in scenes}
    named = {name: read_dictionary(name) for name in elsewhere}
    settings = [replace(item, words=len(named[item.dictionary])) if item.dictionary in named else item for item in settings]
    rows: list[LocalizationRow] = []
    first_folds: list[Fold] = []
    for scene in scenes:
        folds = folds_of(scene, features[scene.name], arguments)
        first_folds.append(folds[0])
        possible = _possible(settings, scene.name, folds, arguments)
        strangers = false_queries(others[scene.name], features, folds, arguments)
        trials = list(trials_of(scene.name, folds, possible, strangers, named, books, arguments))
        here = summed_up(scene, features[scene.name], possible, trials)
        rows += here
        say(arguments, f"\n{scene.name}: {here[0].queries} queries, {here[0].false_queries} of other places, for each setting")
        say_table(arguments, scene_table(here))
        if str(arguments.json) != "-":  # what is done is not lost if the rest is interrupted
            write_json(arguments.json, _record(rows, []))
    laws = [(math.inf, 1), *((value, arguments.default[2]) for value in arguments.epsilon)]
    joint = min(arguments.retrieval_words, sum(most_words(mapped(fold)) for fold in first_folds))
    if with_words and joint < arguments.retrieval_words:
        say(arguments, f"retrieval with {joint} words, not {arguments.retrieval_words}: the maps have too few descriptors")
    retrieval = recalls(first_folds, joint, laws) if with_words else []
    write_json(arguments.json, _record(rows, retrieval))
    if with_words:
        _say_retrieval(arguments, retrieval)
    if arguments.figure:
        draw_localization(arguments.figure, rows, default=arguments.default)
        report(arguments, arguments.figure, "the figure")
    return 0


def _record(rows: Sequence[LocalizationRow], retrieval: Sequence[Recall]) -> dict:
    """The JSON record of the command."""
    return {"rows": [item.as_json() for item in rows], "retrieval": [item.as_json() for item in retrieval], "left_out": []}


def _possible(settings: Sequence[Setting], name: str, folds: Sequence[Fold], arguments: EvaluateLocalization) -> list[Setting]:
    """The settings whose dictionary the maps of the scene `name` can give; the command prints which others are left out.

    Raises InputError if the default number of words is among those left out.
    """
    most = min(most_words(mapped(fold)) for fold in folds)
    left_out = sorted({item.words or 0 for item in settings if item.dictionary == "reference" and (item.words or 0) > most})
    if arguments.default[0] in left_out:
        raise InputError(
            f"the smallest map of {name} has {2 * most} descriptors, enough for {most} words and not for --default "
            f"{arguments.default[0]}; ask for fewer, or for more --max-features"
        )
    if left_out:
        say(arguments, f"{name}: without K = {', '.join(map(str, left_out))}: the smallest map is enough for {most} words")
    return [item for item in settings if item.dictionary != "reference" or (item.words or 0) <= most]


def scene_table(rows: Sequence[LocalizationRow]) -> Table:
    """The table of one scene."""
    errors = "position, median", "rotation, median deg", "inliers, median", "false accepted", "upload, bytes"
    return Table(
        columns=[
            Number("#"),
            *names("form", "matching", "dictionary"),
            *numbers("K", "epsilon", "m", "samples", *(f"{name}, %" for name in rows[0].localized)),
            *numbers(*errors, "epsilon of image"),
        ],
        rows=[
            (
                str(number),
                item.setting.form,
                item.setting.matching or "",
                Path(item.setting.dictionary or "").name,
                str(item.setting.words or ""),
                "" if item.setting.epsilon is None else outward(item.setting.epsilon, 6),
                str(item.setting.m or ""),
                str(item.setting.iterations or ""),
                *(percent(share) for share in item.localized.values()),
                fixed(item.median_position, 4),
                fixed(item.median_rotation_deg, 3),
                fixed(item.median_inliers, 0),
                f"{item.false_accepts}/{item.false_queries}",
                fixed(item.upload_bytes, 0),
                "" if item.epsilon_image is None else outward(item.epsilon_image),
            )
            for number, item in enumerate(rows, start=1)
        ],
        labels=2,
    )


def retrieval_table(retrieval: Sequence[Recall]) -> Table:
    """The table of retrieval from words."""
    return Table(
        columns=[Name("sent"), *numbers("epsilon", "m", "recall at 10, %")],
        rows=[
            ("raw descriptors", "", "", percent(item.recall_at_10))
            if math.isinf(item.epsilon)
            else ("words", outward(item.epsilon, 6), str(item.m), percent(item.recall_at_10))
            for item in retrieval
        ],
    )


def _say_retrieval(arguments: EvaluateLocalization, retrieval: Sequence[Recall]) -> None:
    """Print the table of retrieval below what was searched, or that nothing could be."""
    if not retrieval or not retrieval[0].queries:
        say(arguments, "retrieval: no query overlaps a mapped photograph")
        return
    first = retrieval[0]
    what = f"retrieval among {first.images} photographs of all scenes, {first.queries} queries, {first.words} words"
    say(arguments, f"\n{what}")
    say_table(arguments, retrieval_table(retrieval))
