"""`veil audit MAP --answers OBJECT...`: which objects a map's answers give away, and what the guard of private maps changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypedDict

from veil.cli.common import EXIT_OK, Arguments, StepBar, explain, progress, say_table, write_json
from veil.device.answer_audit import AnsweredObject, AnsweredObjectJson, ObjectViews, audit_answers
from veil.errors import InputError
from veil.files.photographs.pictures import named_pictures, read_picture
from veil.json_records.values import Reasons
from veil.places.held_map import Map
from veil.places.localization import AnswerGuard
from veil.places.maps import NoMap
from veil.report.tables import Name, Remark, Row, Table, numbers

# Options of audits of uploads and tiles, which say nothing of answers.
FOR_OTHERS = (
    *("images", "against", "place_photographs", "map", "codebook", "decoys", "secret_decoys", "database", "attack_model"),
    *("attacker", "only", "attacked_features", "fail_on", "policy", "inverter"),
)


class AuditAnswersJson(TypedDict):
    """An audit of a map's answers, and why objects were left out."""

    objects: list[AnsweredObjectJson]
    largest_object: float
    skipped: Reasons


def audited_answers(arguments: Arguments) -> int:
    """Audit the answers of the map that the arguments name; exit code 0."""
    if given := [name for name in FOR_OTHERS if getattr(arguments, name)]:
        options = ", ".join("--" + name.replace("_", "-") for name in given)
        raise InputError(f"--answers asks a map for objects alone: leave out {options}")
    where, guard = Map.read(arguments.release), AnswerGuard()
    objects, skipped = _objects(arguments.answers)
    if not objects:
        name, reason = next(iter(skipped.items()))
        raise InputError(f"there is no object to ask for; {name}: {reason}")
    with StepBar("asking") as bar:
        answered = audit_answers(where, objects, guard=guard, progress=bar)
    record: AuditAnswersJson = {
        "objects": [item.as_json() for item in answered],
        "largest_object": guard.largest_object,
        "skipped": skipped,
    }
    write_json(arguments.json, record)
    if str(arguments.json) != "-":
        say_table(arguments, answer_table(answered, skipped))
        explain(arguments, *_sentences(answered, where, guard))
    return EXIT_OK


def _objects(given: Sequence[Path]) -> tuple[dict[str, ObjectViews], dict[str, str]]:
    """Views of each object by name: one photograph of something flat, or a folder of photographs; and why others have none."""
    objects, skipped = dict[str, ObjectViews](), dict[str, str]()
    for path in progress(list(given), "mapping objects"):
        pictures = {name: read_picture(photograph) for name, photograph in named_pictures([path])}
        views = ObjectViews.of_photographs(pictures) if path.is_dir() else ObjectViews.of_flat(*pictures.values())
        if isinstance(views, NoMap):
            skipped[path.name] = f"its photographs give no map: {views.reason}"
        else:
            objects[path.name] = views
    return objects, skipped


def answer_table(answered: Sequence[AnsweredObject], skipped: Mapping[str, str]) -> Table:
    """The table of objects: views with a pose, those that agree, where the object stands, and the same with the guard."""
    rows: list[Row] = [_row(item) for item in answered]
    rows += [Remark(labels=(name,), text=f"not asked: {reason}") for name, reason in skipped.items()]
    heads = "views", "with a pose", "agreeing", "place", "size", "guarded: with a pose", "agreeing with the guard"
    return Table(columns=[Name("object"), *numbers(*heads)], rows=rows)


def _row(item: AnsweredObject) -> Row:
    center = item.center
    return (
        item.name,
        str(item.views),
        str(item.answered),
        str(0 if item.place is None else len(item.place.views)),
        "" if center is None else " ".join(f"{value:.3g}" for value in center),
        "" if item.place is None else f"{item.place.map_from_object.scale:.3g}",
        str(item.guarded),
        str(0 if item.guarded_place is None else len(item.guarded_place.views)),
    )


def _sentences(answered: Sequence[AnsweredObject], where: Map, guard: AnswerGuard) -> list[str]:
    """Findings below the table."""
    present = [item.name for item in answered if item.place is not None]
    guarded = sum(item.guarded_place is not None for item in answered)
    told = f"in the map by its answers: {', '.join(present)}" if present else "no object is in the map by its answers"
    kind = "public, and the service tells all its answers" if where.scene.is_public else "private, and the service guards it"
    return [
        told,
        f"with the guard (no pose rests on one thing of {guard.largest_object:g} of the map's extent): {guarded} objects",
        f"the map is {kind}; a large object, or photographs of the place beside it, are not guarded against",
    ]
