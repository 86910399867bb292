"""Tables that `veil evaluate attacks` and `veil evaluate defenses` print."""

from __future__ import annotations

from collections.abc import Sequence

from veil.ldp.rounding import interval_ends
from veil.report.tables import Name, Number, Table, fixed, numbers, percent
from veil_lab.studies.attacks.defenses import DefenseRow
from veil_lab.studies.attacks.distribution import DecoyRow, EstimateRow
from veil_lab.studies.attacks.positions import PositionRow
from veil_lab.studies.attacks.structural import StructuralRow


def structural_table(rows: Sequence[StructuralRow]) -> Table:
    """The table of structural attacks."""
    return Table(
        columns=[
            Name("attack"),
            Number("m"),
            Name("sent as"),
            *numbers("features", "exact, %", "within 0.1, %", "certified, %", "wrongly certified", "seconds each"),
        ],
        rows=[
            (
                row.attack,
                str(row.m),
                row.dtype,
                str(row.features),
                *(percent(share) for share in (row.exact, row.within_01, row.certified)),
                str(row.wrongly_certified),
                fixed(row.seconds, 4),
            )
            for row in rows
        ],
        labels=3,
    )


def distribution_table(rows: Sequence[EstimateRow]) -> Table:
    """The table of attacks by the distribution of descriptors."""
    return Table(
        columns=[
            Name("attack"),
            *numbers("m", "undecided", "mean distance", "within 0.1, %", "within 0.4, %", "within 0.6, %", "identified, %"),
        ],
        rows=[
            (
                row.attack,
                str(row.m),
                str(row.undecided),
                fixed(row.mean_distance, 3),
                *(percent(share) for share in (row.within_01, row.within_04, row.within_06, row.identified)),
            )
            for row in rows
        ],
        labels=2,
    )


def decoy_table(rows: Sequence[DecoyRow]) -> Table:
    """The table of decoys that attacks find."""
    return Table(
        columns=[Name("decoys found by"), *numbers("m", "all right, %", "claimed", "wrong", "largest error")],
        rows=[
            (row.attack, str(row.m), percent(row.exact), str(row.claimed), str(row.wrong), f"{row.largest_error:.2g}")
            for row in rows
        ],
        labels=2,
    )


def position_table(rows: Sequence[PositionRow]) -> Table:
    """The table of attacks on positions."""
    heads = "vertical lines, %", "features", "undecided", "median, px", "within 1 px, %", "within 10 px, %"
    return Table(
        columns=[Name("positions"), *numbers(*heads)],
        rows=[
            (
                row.attack,
                percent(row.aligned_share, 0),
                str(row.features),
                str(row.undecided),
                fixed(row.median_px, 1),
                percent(row.within["1"]),
                percent(row.within["10"]),
            )
            for row in rows
        ],
        labels=2,
    )


def accuracy_table(rows: Sequence[DefenseRow]) -> Table:
    """The table of what defenses cost: mean matching accuracy at 3 px."""
    return Table(
        columns=[Name("defense", least=28), *numbers("MMA raw, %", "MMA p2s, %", "MMA s2s, %")],
        rows=[(row.defense.name, percent(row.raw), percent(row.p2s), percent(row.s2s)) for row in rows],
    )


def near_table(rows: Sequence[DefenseRow]) -> Table:
    """The table of what attacks recover within 0.1 in spite of defenses, each with the upper end of its 95 % interval."""
    return Table(
        columns=[Name("within 0.1, %", least=28), *numbers(*(item.attack for item in rows[0].recoveries))],
        rows=[
            (
                row.defense.name,
                *(f"{percent(item.within[0])} (<{interval_ends(0.0, item.upper)[1]})" for item in row.recoveries),
            )
            for row in rows
        ],
    )


def far_table(rows: Sequence[DefenseRow]) -> Table:
    """The table of what attacks recover within 0.4 in spite of defenses."""
    return Table(
        columns=[Name("within 0.4, %", least=28), *numbers(*(item.attack for item in rows[0].recoveries))],
        rows=[(row.defense.name, *(percent(item.within[1]) for item in row.recoveries)) for row in rows],
    )
