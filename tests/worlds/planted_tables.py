"""Every table that commands print, filled with planted results that are as long as results get."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np

from veil.attacks.answered_objects import ObjectPlace
from veil.attacks.registry import ATTACKS
from veil.audit.finding import Finding, Share
from veil.cli import demo, doctor
from veil.cli.codebook import quality
from veil.cli.device import budget, privatize
from veil.cli.device import plan as budget_plan
from veil.cli.privacy import audit as audit_command
from veil.cli.privacy import audit_answers
from veil.cli.server import plan, serve, serve_upkeep, tiles
from veil.device.answer_audit import AnsweredObject
from veil.distances.measure import Rate
from veil.geometry.similarity import Similarity
from veil.ldp.planning import plan_release
from veil.places.maps.clusters.plans import MapPlan
from veil.report.tables import Table
from veil.tiles.plans import ExitPlan
from veil.trials.form_answers import in_words

LONG = "cambridge/old-hospital, second visit"


def planted(cls: Any, **given: Any) -> Any:
    """A record of the dataclass `cls` with `given` fields, and others that are as long as they get, by their types."""
    hints = typing.get_type_hints(cls)
    fields = {field.name: hints[field.name] for field in dataclasses.fields(cls)}
    return cls(**{name: given[name] if name in given else _value(hint) for name, hint in fields.items()})


def _value(hint: Any) -> Any:
    """A long value of a type."""
    arguments = typing.get_args(hint)
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return _value(next(kind for kind in arguments if kind is not type(None)))
    if typing.get_origin(hint) is typing.Literal:
        return max(arguments, key=lambda value: len(str(value)))
    if typing.get_origin(hint) is tuple:
        return tuple(map(_value, arguments[:1] * 3 if arguments[-1] is Ellipsis else arguments))
    if dataclasses.is_dataclass(hint):
        return planted(hint)
    plain: Mapping[Any, Any] = {int: 123_456, float: 0.99987, bool: True, str: LONG}
    return np.ones(2) if "ndarray" in str(hint) else plain[hint]


def audit() -> list[Finding]:
    """Every attack at its longest; one that was not run, and one that could certify nothing."""
    share = Share(count=4000, total=4000, low=0.999, high=1.0)
    score = SimpleNamespace(recovered=share, exact=share, median_distance=2.1e-08)
    full: dict[str, Any] = {"features": 4000, "certified": share, "seconds": 1234.5, "score": score}
    plain: dict[str, Any] = {"family": "structural", "assumes": "nothing"}
    findings = [Finding(attack=attack.name, **plain, **full) for attack in ATTACKS]
    reason = "the release has no lines, and without lines there is nothing that this attack could look at"
    notes = ("the attack certifies nothing by itself", "give the originals with --images to measure it")
    return [*findings, Finding(attack="lattice", skipped=reason, **plain), Finding(attack="vertex", notes=notes, **plain)]


def ledger() -> list[dict]:
    """Images with releases in words, with several, and in subspaces alone."""
    release = {"features": 123_456, "words": 256_000, "m": 16, "epsilon": 0.1234567890123}
    unit = {"epsilon": 123_456.789, "basic": 1_234_567.89}
    image = {"name": LONG, "feature": unit, "object": unit, "image": unit}
    return [
        {**image, "releases": [release, release], "no_proof": 3},
        {**image, "releases": [], "no_proof": 1},
    ]


def sent() -> Table:
    """The table of the demo."""
    outcome = SimpleNamespace(
        variant=in_words(16_384),
        pose=None,
        position_error=0.1,
        rotation_error_deg=0.123,
        upload_bytes=1_234_567,
        answer=SimpleNamespace(exit="two servers", up_bytes=123_456, pose=None),
    )
    exits = SimpleNamespace(queries=(outcome,), strangers=(outcome,))
    return demo.sent_table([outcome], [outcome], exits, 12.0)  # type: ignore[list-item,arg-type]


def by_exit() -> Any:
    """Photographs localized in tiles by the exit of the longest name."""
    answer = SimpleNamespace(exit="two servers", once_bytes=123_456_789, up_bytes=12_345_678, down_bytes=123_456_789)
    return SimpleNamespace(queries=(SimpleNamespace(answer=answer),))


def answered_object() -> AnsweredObject:
    """An object that every view tells of, far away."""
    similarity = Similarity(scale=123.4, rotation=np.eye(3), translation=np.array([-1234.5, 0.01234, 12.3]))
    place = ObjectPlace(map_from_object=similarity, views=np.arange(40))
    return AnsweredObject(name=LONG, views=40, answered=40, place=place, guarded=40, guarded_place=place)


def machine_tables() -> dict[str, Callable[[], Table]]:
    """Tables of commands about this machine, and of plans."""
    backends = [{"backend": "reference", "serves": False, "detail": "numba 0.62 on 2 of 2 cores, AVX-512, " * 3}]
    plans = plan_release(image_epsilon=200.0, delta=1e-6, features=[2000], words=[256_000], subset_sizes=[16])
    spread = dict.fromkeys(("mean", "p5", "median", "p95"), 0.123)
    record = {"pool": 123_456, "to_nearest_word": spread, "to_nearest_other": spread, "to_random": spread}
    missing = {name: dict.fromkeys(packages) for name, (packages, _, _) in doctor.EXTRAS.items()}
    releases = [{"name": LONG, "file": f"{'f' * 32}.veil", "features": 1000, "found": 8192, "bytes": 1.2e6}]
    in_words = [{**releases[0], "image_epsilon": 12345.6, "median_error": 0.512}]
    return {
        "backend_table": lambda: doctor.backend_table(backends),
        "extra_table": lambda: doctor.extra_table(missing),
        "rates_table": lambda: doctor.rates_table([planted(Rate)]),
        "plan.plan_table": lambda: plan.plan_table(planted(MapPlan, memory_bytes=10**14), "retrieval", 10_000),
        "exits_table": lambda: demo.exits_table(by_exit()),
        "exit_table": lambda: tiles.exit_table([planted(ExitPlan, total_bytes=999_900_000)] * 2),
        "budget_plan.plan_table": lambda: budget_plan.plan_table(plans),
        "image_table": lambda: budget.image_table(ledger(), 50),
        "release_table": lambda: privatize.release_table(releases),
        "release_table in words": lambda: privatize.release_table(in_words),
        "token_table": lambda: serve.token_table([("t" * 24, "robot 7", "localize, contribute, admin")] * 2),
        "share_table": lambda: serve_upkeep.share_table([("t" * 24, "robot 7", "1234", "98.7", "1234", "12")]),
        "spread_table": lambda: quality.spread_table(record),
        "sent_table": sent,
        "attack_table": lambda: audit_command.attack_table(audit()),
        "answer_table": lambda: audit_answers.answer_table([answered_object()], {LONG: "its photographs give no map"}),
    }


TABLES = machine_tables()
"""The function that makes each table, by its name, preceded by its module if two functions share the name."""
