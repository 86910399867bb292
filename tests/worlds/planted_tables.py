"""Every table that commands print, filled with planted results that are as long as results get."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np

from veil.attacks.on_subspaces import SUBSPACE_ATTACKS
from veil.attacks.registry import ATTACKS
from veil.audit.finding import Finding, Share
from veil.cli import demo, doctor
from veil.cli.codebook import quality
from veil.cli.device import budget, privatize
from veil.cli.device import plan as budget_plan
from veil.cli.evaluate import (
    attack_tables,
    attributes,
    descriptor_attacks,
    faces,
    homographies,
    identification,
    inversion,
    learned,
    localization,
    localization_table,
    neighborhoods,
    query_tables,
    reconstruction,
    retrieval,
    tiles,
    upright,
)
from veil.cli.evaluate.descriptors import Descriptors
from veil.cli.faces import calibrate, enrollment
from veil.cli.privacy import audit_table
from veil.cli.server import plan, serve, suspects, tile_plan
from veil.distances.measure import Rate
from veil.faces.identification import GallerySize
from veil.files.measured_forms import bundled_measured_forms
from veil.ldp.planning import plan_release
from veil.mapping.plans import MapPlan
from veil.report import measured_forms
from veil.report.tables import Table
from veil.studies.attacks.by_descriptor import DescriptorRow
from veil.studies.attacks.defenses import DefenseRow, Recovery, default_defenses
from veil.studies.attacks.distribution import DecoyRow, EstimateRow
from veil.studies.attacks.inversion import Gap, InversionRow
from veil.studies.attacks.learned import LearnedRow
from veil.studies.attacks.neighborhoods import NeighborhoodRow
from veil.studies.attacks.positions import PositionRow
from veil.studies.attacks.structural import StructuralRow
from veil.studies.faces.attributes import AttributeRow
from veil.studies.faces.identification import IdentificationRow
from veil.studies.faces.repeated_probes import HistoryRow
from veil.studies.faces.unlinkability import ProtectionRow
from veil.studies.faces.verification import FALSE_REJECTS, VerificationRow
from veil.studies.localization.acceptance_counts import AcceptanceCount
from veil.studies.localization.forged_answers import GroupCount
from veil.studies.localization.form_answers import in_words
from veil.studies.localization.retrieval import Recall
from veil.studies.localization.robustness import ErrorSummary
from veil.studies.localization.tile_forms import FormRow
from veil.studies.localization.tile_localization import TileRow
from veil.studies.localization.upright_localization import UprightRow, UprightSetting
from veil.studies.localization.word_localization_settings import METRIC, LocalizationRow
from veil.studies.matching.retrieval_recall import RETRIEVED, RecallRow
from veil.tiles.plans import ExitPlan

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


def shares(keys: Any) -> dict:
    return dict.fromkeys(keys, 0.9987)


def defenses() -> list[DefenseRow]:
    """The row of each defense, with the attacks of the study."""
    names = "lattice", "vertex", "nearest", "intersection", "database"
    recoveries = tuple(planted(Recovery, attack=name) for name in names)
    return [planted(DefenseRow, defense=defense, recoveries=recoveries) for defense in default_defenses(4)]


def audit() -> list[Finding]:
    """Every attack at its longest; one that was not run, and one that could certify nothing."""
    share = Share(count=4000, total=4000, low=0.999, high=1.0)
    score = SimpleNamespace(recovered=share, exact=share, median_distance=2.1e-08)
    full: dict[str, Any] = {"features": 4000, "certified": share, "seconds": 1234.5, "score": score}
    plain: dict[str, Any] = {"family": "structural", "assumes": "nothing"}
    found = [Finding(attack=attack.name, **plain, **full) for attack in ATTACKS]
    reason = "the release has no lines, and without lines there is nothing that this attack could look at"
    notes = ("the attack certifies nothing by itself", "give the originals with --images to measure it")
    return [*found, Finding(attack="lattice", skipped=reason, **plain), Finding(attack="vertex", notes=notes, **plain)]


# What `veil evaluate attacks --descriptor` tells of a descriptor's photographs and books.
MATERIAL: Mapping[str, Any] = {
    "descriptor": "aliked-n16rot",
    "dim": 128,
    "axes": 127,
    "attacked": 12_345,
    "others": 12_345,
    "features": 1234.5,
    "words": 256_000,
    "decoys": 262_144,
    "database": 262_144,
}


def compared_attacks() -> Table:
    """Every attack on subspaces, run and not run, of four descriptors and one that cannot be extracted."""
    share = Share(count=4000, total=4000, low=0.999, high=1.0)
    score: Any = SimpleNamespace(unit="descriptor", shares={"within_0.1": share, "within_0.4": share})
    plain: dict[str, Any] = {"family": "structural", "assumes": "nothing"}
    kinds: list[Any] = ["sift", "aliked-n16rot", "xfeat"]
    rows = [
        DescriptorRow(descriptor=kind, form="words, eps 10", attack=name, finding=finding)
        for kind in kinds
        for name, finding in (
            *((attack.name, Finding(attack=attack.name, score=score, **plain)) for attack in SUBSPACE_ATTACKS),
            ("database, pool known", Finding(attack="database", skipped="the reason", **plain)),
        )
    ]
    named = Descriptors(networks=dict.fromkeys(kinds), left_out={"hardtfeat": "it is not here"})
    return descriptor_attacks.compared_attacks(rows, named, descriptor_attacks.reasons_of(rows, named))


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
        found=None,
        position_error=0.1,
        rotation_error_deg=0.123,
        upload_bytes=1_234_567,
        answer=SimpleNamespace(exit="two servers", up_bytes=123_456, found=None),
    )
    exits = SimpleNamespace(queries=(outcome,), strangers=(outcome,))
    return demo.sent_table([outcome], [outcome], exits, 12.0)  # type: ignore[list-item,arg-type]


def upright_setting() -> UprightSetting:
    return UprightSetting(features=10_000, epsilon=10.25, m=16, words=256_000, near=10)


def run() -> Any:
    """A run of `veil evaluate reconstruction`."""
    errors = SimpleNamespace(mean=123.456789)
    fields = {"scene": LONG, "method": "points", "gravity_noise_deg": 0.25, "registered": 1234, "total": 1234}
    return SimpleNamespace(**fields, position=errors, rotation_deg=errors, succeeded=True)


def machine_tables() -> dict[str, Callable[[], Table]]:
    """Tables of commands about this machine, and of plans."""
    backends = [{"backend": "reference", "serves": False, "detail": "numba 0.62 on 2 of 2 cores, AVX-512, " * 3}]
    plans = plan_release(image_epsilon=200.0, delta=1e-6, features=[2000], words=[256_000], subset_sizes=[16])
    tried = SimpleNamespace(plan=plans[0], row=planted(UprightRow, setting=upright_setting()), finished=False)
    spread = dict.fromkeys(("mean", "p5", "median", "p95"), 0.123)
    record = {"pool": 123_456, "to_nearest_word": spread, "to_nearest_other": spread, "to_random": spread}
    missing = {name: dict.fromkeys(packages) for name, (packages, _) in doctor.EXTRAS.items()}
    releases = [{"name": LONG, "file": f"{'f' * 32}.veil", "features": 1000, "found": 8192, "bytes": 1.2e6}]
    in_words = [{**releases[0], "image_epsilon": 12345.6, "median_error": 0.512}]
    return {
        "backend_table": lambda: doctor.backend_table(backends),
        "extra_table": lambda: doctor.extra_table(missing),
        "rates_table": lambda: doctor.rates_table([planted(Rate)]),
        "plan.plan_table": lambda: plan.plan_table(planted(MapPlan, memory_bytes=10**14), "retrieval", 10_000),
        "exit_table": lambda: tile_plan.exit_table([planted(ExitPlan, total_bytes=999_900_000)] * 2),
        "budget_plan.plan_table": lambda: budget_plan.plan_table(plans),
        "tried_table": lambda: budget_plan.tried_table([tried]),  # type: ignore[list-item]
        "image_table": lambda: budget.image_table(ledger(), 50),
        "release_table": lambda: privatize.release_table(releases),
        "release_table in words": lambda: privatize.release_table(in_words),
        "token_table": lambda: serve.token_table([("t" * 24, "robot 7", "localize, contribute, admin")] * 2),
        "share_table": lambda: suspects.share_table([("t" * 24, "robot 7", "1234", "98.7", "1234", "12")]),
        "spread_table": lambda: quality.spread_table(record),
        "sent_table": sent,
        "attack_table": lambda: audit_table.attack_table(audit()),
    }


def study_tables() -> dict[str, Callable[[], Table]]:
    """Tables of `veil evaluate`."""
    matching = {"profile": "hardened", "lifting": "sub-adversarial", "m": 16, "distance": "point", "matches": 1234.5}
    measured = bundled_measured_forms()
    setting = planted(LocalizationRow, localized=shares(METRIC))
    recalls = [planted(Recall), planted(Recall, epsilon=np.inf)]
    return {
        "matching_table": lambda: homographies.matching_table([{**matching, "mma": shares(("1", "3", "5", "10"))}]),
        "descriptor_table": lambda: homographies.descriptor_table(
            [
                {
                    **matching,
                    "descriptor": "aliked-n16rot",
                    "profile": "hardened",
                    "distance": "s2s",
                    "features": 2000.0,
                    "right_matches": 1234.5,
                    "mma": shares(("1", "3", "5", "10")),
                }
            ]
        ),
        "compared_table": lambda: localization_table.compared_table(
            [setting, setting], [("Herz-Jesus-P8", "aliked-n16rot", "too few pairs of photographs match")]
        ),
        "structural_table": lambda: attack_tables.structural_table([planted(StructuralRow)]),
        "distribution_table": lambda: attack_tables.distribution_table([planted(EstimateRow)]),
        "decoy_table": lambda: attack_tables.decoy_table([planted(DecoyRow)]),
        "position_table": lambda: attack_tables.position_table([planted(PositionRow, within=shares(("1", "10")))]),
        "accuracy_table": lambda: attack_tables.accuracy_table(defenses()),
        "near_table": lambda: attack_tables.near_table(defenses()),
        "far_table": lambda: attack_tables.far_table(defenses()),
        "acceptance_table": lambda: query_tables.acceptance_table([planted(AcceptanceCount)]),
        "robustness_table": lambda: query_tables.robustness_table([planted(ErrorSummary)]),
        "forged_table": lambda: query_tables.forged_table([planted(GroupCount)], "forged queries"),
        "neighborhood_table": lambda: neighborhoods.neighborhood_table(
            [planted(NeighborhoodRow, within=shares(neighborhoods.WITHIN_PX))]
        ),
        "learned_table": lambda: learned.learned_table([planted(LearnedRow)]),
        "scene_table": lambda: localization.scene_table([setting, setting]),
        "retrieval_table": lambda: localization.retrieval_table(recalls),
        "material_table": lambda: descriptor_attacks.material_table([MATERIAL]),
        "compared_attacks": compared_attacks,
        "recall_table": lambda: retrieval.recall_table(
            [planted(RecallRow, recall=shares(RETRIEVED))], {"xfeat": "it is not here"}
        ),
        "upright_table": lambda: upright.upright_table([planted(UprightRow, setting=upright_setting())]),
        "tile_table": lambda: tiles.tile_table([planted(TileRow)]),
        "form_table": lambda: tiles.form_table([planted(TileRow)], [planted(FormRow)]),
        "reconstruction.summary_table": lambda: reconstruction.summary_table([run()]),
        "cost_table": lambda: measured_forms.cost_table(measured),
        "measured_forms.recovery_table": lambda: _present(measured_forms.recovery_table(measured)),
        "measured_forms.summary_table": lambda: measured_forms.summary_table(measured),
        "inversion_table": lambda: inversion.inversion_table([planted(InversionRow)]),
        "gap_table": lambda: inversion.gap_table([planted(Gap)]),
    }


def _present(table: Table | None) -> Table:
    assert table is not None
    return table


def face_tables() -> dict[str, Callable[[], Table]]:
    """Tables of faces."""
    verified = planted(VerificationRow, false_accepts=shares(map(str, FALSE_REJECTS)))
    few = {"threshold": None, "fpir": None, "fpir_low": None, "fpir_high": None, "exceeded": None, "fnir": None}
    return {
        "verification_table": lambda: faces.verification_table([verified]),
        "protection_table": lambda: faces.protection_table([planted(ProtectionRow)]),
        "history_table": lambda: faces.history_table([planted(HistoryRow)]),
        "identification_table": lambda: identification.identification_table(
            [planted(IdentificationRow), planted(IdentificationRow, **few)]
        ),
        "attribute_table": lambda: attributes.attribute_table([planted(AttributeRow)]),
        "size_table": lambda: calibrate.size_table([planted(GallerySize)], {123_456}),
        "template_table": lambda: enrollment.template_table([(LONG, "Ada Lovelace", "12", "revoked")]),
    }


TABLES = machine_tables() | study_tables() | face_tables()
"""What makes each table, by the name of its function, with its module where two have one name."""
