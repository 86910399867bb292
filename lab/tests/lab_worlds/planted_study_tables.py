"""Every table of studies, filled with planted results that are as long as results get."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np

from veil.attacks.on_subspaces import SUBSPACE_ATTACKS
from veil.audit.finding import Finding, Share
from veil.files.measured_forms import bundled_measured_forms
from veil.ldp.mechanism import SubsetMechanism
from veil.ldp.planning import plan_release
from veil.mechanisms.profile import Profile
from veil.report.tables import Table
from veil_lab.cli import quality, results, tune
from veil_lab.cli.evaluate import homographies, reconstruction
from veil_lab.cli.evaluate.attacks import (
    answers,
    attack_tables,
    descriptor_attacks,
    inversion,
    learned,
    neighborhoods,
    repeats,
    word_inversion,
)
from veil_lab.cli.evaluate.descriptors import Descriptors
from veil_lab.cli.evaluate.poses import (
    localization,
    localization_lifting,
    localization_table,
    plans,
    query_tables,
    retrieval,
    sequences,
    tiles,
    upright,
)
from veil_lab.report import board, measured_forms
from veil_lab.studies.answers.in_photographs import PaintedRow
from veil_lab.studies.answers.rows import AnswerDefenseRow, MembershipRow, TimeRow
from veil_lab.studies.answers.separation import Separation
from veil_lab.studies.attacks.assumptions import LISTS, Assumptions
from veil_lab.studies.attacks.by_descriptor import DescriptorRow
from veil_lab.studies.attacks.defenses import DefenseRow, Recovery, default_defenses
from veil_lab.studies.attacks.distribution import DecoyRow, EstimateRow
from veil_lab.studies.attacks.learned import LearnedRow
from veil_lab.studies.attacks.neighborhoods import NeighborhoodRow
from veil_lab.studies.attacks.positions import PositionRow
from veil_lab.studies.attacks.repeats import RepeatRow
from veil_lab.studies.attacks.structural import StructuralRow
from veil_lab.studies.board.rows import BoardRow, BoardScene, MapCounts, RecoveredShare
from veil_lab.studies.localization.acceptance_counts import AcceptanceCount
from veil_lab.studies.localization.answer_counts import AnswerCounts
from veil_lab.studies.localization.forged_answers import GroupCount
from veil_lab.studies.localization.retrieval import Recall
from veil_lab.studies.localization.robustness import ErrorSummary
from veil_lab.studies.localization.tile_localization import TileFormRow, TileRow
from veil_lab.studies.localization.upright_localization import UprightRow, UprightSetting
from veil_lab.studies.localization.word_localization_settings import METRIC, LocalizationRow, Setting
from veil_lab.studies.mapping.by_lifting import LiftingRow
from veil_lab.studies.matching.retrieval_recall import RETRIEVED, RecallRow
from veil_lab.studies.pictures.inversion import Gap, InversionRow, Inverted
from veil_lab.studies.pictures.word_inversion import WordInversion
from veil_lab.studies.sequences.localization import SequenceRow, SequenceSetting
from veil_lab.training.view_tuning import TunedPlace
from worlds.planted_tables import LONG, planted


def shares(keys: Any) -> dict:
    return dict.fromkeys(keys, 0.9987)


def defenses() -> list[DefenseRow]:
    """The row of each defense, with the attacks of the study."""
    names = "lattice", "vertex", "nearest", "intersection", "database"
    recoveries = tuple(planted(Recovery, attack=name) for name in names)
    return [planted(DefenseRow, defense=defense, recoveries=recoveries) for defense in default_defenses(4)]


# The age of a record that was run long ago.
AGE: results.ResultAgeJson = {
    "name": "localization_by_descriptor",
    "command": "veil evaluate localization",
    "date": "2026-11-27",
    "commit": "01234567+",
    "imported": False,
    "processor_seconds": 123_456.7,
    "changed": ["src/veil/forms.py"] * 1234,
}
# A law of words.
LAW = SubsetMechanism(dictionary_size=256_000, epsilon=12.345, m=16)
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


def upright_setting() -> UprightSetting:
    return UprightSetting(features=10_000, epsilon=10.25, m=16, words=256_000, near=10)


def sequence_setting() -> SequenceSetting:
    return SequenceSetting(sent="one image, medium features", frames=12, features=10_000, epsilon=10.25)


def run() -> Any:
    """A run of `veil evaluate reconstruction`."""
    errors = SimpleNamespace(mean=123.456789)
    fields = {"scene": LONG, "method": "points", "gravity_noise_deg": 0.25, "registered": 1234, "total": 1234}
    return SimpleNamespace(**fields, position=errors, rotation_deg=errors, succeeded=True)


def planted_row() -> BoardRow:
    """A row of the board with all of its numbers."""
    share = planted(RecoveredShare, attack="matched candidates")
    return planted(
        BoardRow,
        form="subspaces, lines",
        built=planted(MapCounts),
        answers=planted(AnswerCounts),
        one=share,
        five=share,
        near=share,
    )


def study_tables() -> dict[str, Callable[[], Table]]:
    """Tables of `veil evaluate`."""
    matching = {"profile": "hardened", "lifting": "sub-adversarial", "m": 16, "distance": "point", "matches": 1234.5}
    measured = bundled_measured_forms()
    plan = plan_release(image_epsilon=200.0, delta=1e-6, features=[2000], words=[256_000], subset_sizes=[16])[0]
    tried: Any = SimpleNamespace(plan=plan, row=planted(UprightRow, setting=upright_setting()), finished=False)
    setting = planted(LocalizationRow, localized=shares(METRIC))
    none, all_of_it = ((0.0, 0.0, 0.0),), ((1.0, 1.0, 1.0),)  # the largest gain
    gains = [
        planted(LearnedRow, attack="modes", by_photograph=none),
        planted(LearnedRow, attack="whole photograph, positions hidden", by_photograph=all_of_it),
    ]
    sent = Setting(form="subspaces", m=16, profile=Profile.paper(16, "sub-adversarial"))
    lifted = [planted(LiftingRow, setting=sent), planted(LiftingRow, setting=Setting(form="raw"), position=None)]
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
        "lifted_map_table": lambda: localization_lifting.lifted_map_table(lifted),
        "lifted_query_table": lambda: localization_lifting.lifted_query_table(lifted),
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
        "board_table": lambda: board.board_table([planted(BoardScene, scene=LONG, rows=(planted_row(),))]),
        "learned_table": lambda: learned.learned_table([planted(LearnedRow)]),
        "gain_table": lambda: learned.gain_table(gains, seed=0),
        "repeats_table": lambda: repeats.repeats_table([planted(RepeatRow, unit="descriptor", kind="frame")]),
        "scene_table": lambda: localization.scene_table([setting, setting]),
        "retrieval_table": lambda: localization.retrieval_table(recalls),
        "material_table": lambda: descriptor_attacks.material_table([MATERIAL]),
        "compared_attacks": compared_attacks,
        "recall_table": lambda: retrieval.recall_table(
            [planted(RecallRow, recall=shares(RETRIEVED))], {"xfeat": "it is not here"}
        ),
        "tried_table": lambda: plans.tried_table([tried]),
        "upright_table": lambda: upright.upright_table([planted(UprightRow, setting=upright_setting())]),
        "sequences_table": lambda: sequences.sequences_table([planted(SequenceRow, setting=sequence_setting())]),
        "tile_table": lambda: tiles.tile_table([planted(TileRow)]),
        "form_table": lambda: tiles.form_table([planted(TileRow)], [planted(TileFormRow)]),
        "reconstruction.summary_table": lambda: reconstruction.summary_table([run()]),
        "cost_table": lambda: measured_forms.cost_table(measured),
        "measured_forms.interval_table": lambda: _present(measured_forms.interval_table(measured)),
        "measured_forms.recovery_table": lambda: _present(measured_forms.recovery_table(measured)),
        "measured_forms.summary_table": lambda: measured_forms.summary_table(measured),
        "inversion_table": lambda: inversion.inversion_table([planted(InversionRow)]),
        "word_inversion_table": lambda: word_inversion.word_inversion_table(
            [planted(WordInversion, law=LAW, row=planted(InversionRow))], {LAW: 16.0}, 256_000
        ),
        "picture_table": lambda: reconstruction.picture_table({"fountain-P11": [planted(Inverted, attack="line map")] * 2}),
        "places_table": lambda: tune.places_table([planted(TunedPlace)]),
        "sharpness_table": lambda: tune.sharpness_table([planted(TunedPlace)]),
        "age_table": lambda: results.age_table([AGE]),
        "assumption_table": lambda: quality.assumption_table(
            [planted(Assumptions, words=256_000, matched=dict.fromkeys(LISTS, 0.98765), judged=300, apart=299)]
        ),
        "frontier_table": lambda: _present(measured_forms.frontier_table(measured)),
        "defense_table": lambda: answers.defense_table([planted(AnswerDefenseRow, separation=planted(Separation))]),
        "membership_table": lambda: answers.membership_table(
            [planted(MembershipRow, same_place=planted(Separation), other_place=planted(Separation))]
        ),
        "time_table": lambda: answers.time_table([planted(TimeRow, separation=planted(Separation))]),
        "painted_table": lambda: answers.painted_table([planted(PaintedRow, separation=planted(Separation))]),
        "gap_table": lambda: inversion.gap_table([planted(Gap)]),
    }


def _present(table: Table | None) -> Table:
    assert table is not None
    return table


TABLES = study_tables()
"""The function that makes each table, by its name, preceded by its module if two functions share the name."""
