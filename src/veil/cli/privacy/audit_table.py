"""Output of `veil audit`: a table of attacks, and sentences on what else was found."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence

from veil.audit.audit_result import Audit
from veil.audit.finding import Finding
from veil.cli.common import explain, say_table
from veil.cli.remedies import advised, phrase
from veil.report.tables import Name, Remark, Row, Table, interval, numbers, percent


def say_outcome(arguments: argparse.Namespace, outcome: Audit) -> None:
    """Print an audit."""
    say_table(arguments, attack_table(outcome.findings))
    explain(arguments, *_sentences(outcome))


def attack_table(findings: Sequence[Finding]) -> Table:
    """The table of attacks: shares of the features that each recovered, and the median error of its estimates."""
    heads = "count", "recovered %", "95 % interval", "exact %", "certified %", "error", "time s"
    return Table(columns=[Name("attack"), *numbers(*heads)], rows=[_row(finding) for finding in findings])


def _row(finding: Finding) -> Row:
    """The row of an attack; what it could not do is a remark."""
    score, recovered = finding.score, finding.recovered
    if finding.skipped:
        return Remark(labels=(finding.attack,), text=f"not run: {advised(finding.skipped, finding.remedy)}")
    if recovered is None:
        return Remark(labels=(finding.attack,), text="; ".join(finding.notes))
    exact = None if score is None or score.exact is None else score.exact.value
    median = None if score is None else score.median_distance
    return (
        finding.attack,
        str(finding.features),
        percent(recovered.value),
        interval(recovered.low, recovered.high),
        percent(exact),
        percent(None if finding.certified is None else finding.certified.value),
        "" if median is None else f"{median:.{1 if median < 1e-3 else 2}g}",
        f"{finding.seconds:.{1 if finding.seconds < 100 else 0}f}",
    )


def _sentences(outcome: Audit) -> Iterator[str]:
    """Findings beside the table, ending with the verdict."""
    for picture in outcome.pictures:
        if picture.ssim is not None:
            yield (
                f"picture of {picture.release}, {picture.attack}: ssim {picture.ssim:.3f}, "
                f"psnr {picture.psnr:.1f} dB, mae {picture.mae:.3f}"
            )
    if outcome.measured is not None:
        yield f"epsilon is at least {outcome.measured.low:.2f} ({outcome.measured.trials:,} trials, 95 %)"
    for names, why in outcome.told_not_looked_at:
        yield f"nothing to look at for {names}: {why}"
    yield from outcome.told_time(phrase)[int(not any(finding.cut_short for finding in outcome.findings)) :]
    for rule, why in outcome.breaches.items():
        yield f"broken rule {rule}: {why}"
    yield advised(str(outcome.verdict), outcome.verdict.remedy)
