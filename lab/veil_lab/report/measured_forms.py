"""Tables of measured forms: what each form of a photograph costs, localizes and gives away.

A file of its own: pages quote these tables, which show one record of veil.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from veil.audit.measured_forms import MeasuredForm
from veil.ldp.rounding import outward
from veil.report.tables import Name, Number, Table, Words, numbers

SHARES = (
    "shares are in percent: of descriptors within 0.1 / 0.2 / 0.4, of positions within 5 / 20 px, of words; placed: "
    "photographs whose place is found"
)


def cost_table(forms: Sequence[MeasuredForm]) -> Table:
    """The table of what each form localizes and costs."""
    return Table(
        columns=[Name("form"), *numbers("localized", "wrong", "features", "kB", "epsilon of the image")],
        rows=[
            (
                form.form,
                f"{form.localized} of {form.queries}",
                str(form.wrong),
                f"{form.features:.0f}",
                f"{form.upload_bytes / 1e3:.0f}",
                "-" if form.epsilon_image is None else outward(form.epsilon_image),
            )
            for form in forms
        ],
    )


def recovery_table(forms: Sequence[MeasuredForm]) -> Table | None:
    """The table of what each attack recovers from each form; None where nothing was attacked."""
    attacked = [form for form in forms if form.attacks]
    if not attacked:
        return None
    return Table(
        columns=[Name("attack"), *numbers("uploads", *(form.form for form in attacked))],
        rows=list(_recoveries(attacked)),
        labels=2,
    )


def _recoveries(attacked: Sequence[MeasuredForm]) -> Iterator[tuple[str, ...]]:
    """The rows of `recovery_table`. Most attacks gain nothing from other uploads: such rows are left out."""
    counts = sorted({item.uploads for form in attacked for item in form.attacks})
    for name in dict.fromkeys(item.attack for form in attacked for item in form.attacks):
        before: list[str] = []
        for count in counts:
            cells = [
                next((item.cell for item in form.attacks if item.attack == name and item.uploads == count), "-")
                for form in attacked
            ]
            if any(cell != "-" for cell in cells) and cells != before:
                yield name, str(count), *cells
            before = cells


def interval_table(forms: Sequence[MeasuredForm]) -> Table | None:
    """The best attacks of each form with intervals over the attacked photographs; None where nothing was attacked."""
    attacked = [form for form in forms if form.attacks]
    if not attacked:
        return None
    return Table(
        columns=[Name("what is sent"), Words("best attack"), *numbers("uploads", "photographs", "recovered", "95 % interval")],
        rows=list(_best(attacked)),
        labels=2,
    )


def _best(attacked: Sequence[MeasuredForm]) -> Iterator[tuple[str, ...]]:
    """The rows of `interval_table`, without those of several uploads that give no more than one."""
    for form in attacked:
        before: set[tuple[str, str]] = set()
        for unit, uploads in sorted({(item.unit, item.uploads) for item in form.attacks}):
            best = form.best(unit, uploads)
            if best is not None and (best.attack, best.cell) not in before:
                before.add((best.attack, best.cell))
                yield form.form, best.attack, str(uploads), str(best.photographs), best.cell, best.interval


def frontier_table(forms: Sequence[MeasuredForm]) -> Table | None:
    """The table of what each form localizes against what the best attack on one upload recovers; None without attacks."""
    attacked = [(form, best) for form in forms if (best := form.best("descriptor", 1)) is not None]
    if not attacked:
        return None
    columns = numbers(
        "features sent", "localized, %", "within 0.1, %", "within 0.2, %", "within 0.4, %", "descriptors within 0.2"
    )
    return Table(
        columns=[Name("what is sent"), Words("best attack"), *columns],
        rows=[
            (
                form.form,
                best.attack,
                f"{form.features:.0f}",
                f"{100 * form.localized / form.queries:.0f}",
                *(f"{100 * share:.0f}" for share in best.shares),
                f"{best.shares[1] * form.features:.0f}",
            )
            for form, best in attacked
        ],
    )


def summary_table(forms: Sequence[MeasuredForm]) -> Table:
    """The short table: each form with what it localizes and what the best attacks recover."""
    return Table(
        columns=[
            Name("what is sent"),
            Number("epsilon of the image"),
            Number("localized"),
            Words("what the best attacks recover", least=30),
        ],
        rows=[
            (
                form.form,
                "-" if form.epsilon_image is None else outward(form.epsilon_image),
                f"{form.localized} of {form.queries}",
                form.told or "everything, as a picture",
            )
            for form in forms
        ],
    )
