"""The HTML page of an audit: the upload, what each attack recovers from it, and the verdict."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from veil.audit.audit_result import Audit
from veil.audit.epsilon import EpsilonBound
from veil.audit.finding import Finding, Share
from veil.audit.on_pictures import UNPROTECTED, DrawnPicture
from veil.audit.verdict import NOT_TESTED
from veil.errors import Remedy, Say, sentence
from veil.ldp.rounding import inward, outward
from veil.report import pictures
from veil.report.figures import DASHES, GRAY, SERIES, in_style, new_figure
from veil.report.page_templates import page_template
from veil.version import __version__
from veil.wire.message import LineUpload, Message

ReadRgb = Callable[[str], np.ndarray]  # pixels (rows, columns, 3) of a photograph by its name
TITLES = {
    "structural": "Structure of the descriptors: no database, no training",
    "repeat": "Repeats: a second release of one photograph",
    "views": "Matched views: other uploads of the place, matched as the service matches them",
    "matches": "Matches: what a holder of a map, or of photographs of the place, learns of features that match",
    "intersection": "Intersections of subspaces",
    "distribution": "Distribution of descriptors: the attacker has photographs of its own",
    "positions": "Positions: hidden in lines, or in the clear",
    "words": "Words",
    "order": "Order of the features",
}


@dataclass(frozen=True, kw_only=True)
class ShownPicture:
    """A picture of the page: its title, its data URI, and of what `kind` it is for who reads the page (`veil view`).

    That is "photograph", "sent" (the view of the server), "features" (colored by an attack), "reconstructed" by an attack, or
    "unprotected" (from raw features, had they been sent).
    """

    kind: str
    title: str
    uri: str


@dataclass(frozen=True, kw_only=True)
class Shown:
    """Pictures of one release in one row of the page: the photograph, the view of the server, and those that attacks made.

    `image` is the name of the photograph, empty where the originals are not known.
    """

    name: str
    image: str
    pictures: tuple[ShownPicture, ...]


def page(outcome: Audit, *, shown: Sequence[Shown], seconds: float, say: Say = str) -> str:
    """The self-contained HTML page of an audit; nothing in it is fetched.

    `shown` are its rows of pictures, `seconds` the wall time of the audit. `say` turns a remedy into a phrase.
    """
    families = [family for family in TITLES if any(finding.family == family for finding in outcome.findings)]
    return page_template("audit.html").render(
        version=__version__,
        verdict=outcome.verdict,
        facts=[(key, value if isinstance(value, (list, tuple)) else [value]) for key, value in outcome.facts.items()],
        families=[(TITLES[family], [_row(f, say) for f in outcome.findings if f.family == family]) for family in families],
        curves=_curves(outcome.findings),
        shown=shown,
        rules=[(rule.text, outcome.why(rule) or "") for rule in outcome.rules],
        epsilons=[(unit, "no bound" if math.isinf(value) else outward(value)) for unit, value in outcome.epsilons.items()],
        measured="" if outcome.measured is None else _measured(outcome.measured),
        delta=f"{outcome.delta:g}",
        have_originals=bool(outcome.originals),
        not_tested=NOT_TESTED,
        not_looked_at=outcome.told_not_looked_at,
        time=outcome.told_time(say),
        headline=sentence(outcome.verdict.headline, outcome.verdict.remedy, say),
        originals=say(Remedy("give", "run_audit.originals")),
        views=say(Remedy("see", "views of the audit")),
        seconds=f"{seconds:.0f}",
    )


def _measured(bound: EpsilonBound) -> str:
    """The sentence about the measured bound of epsilon."""
    return (
        f"at least {inward(bound.low, 3)} with {100 * bound.confidence:g} % confidence, by {bound.trials:,} runs of this "
        f"veil's mechanism on each of two words ({outward(bound.ceiling, 3)} is the most that this number can show)"
    )


def _row(finding: Finding, say: Say) -> dict:
    """Texts and numbers that the template shows of one attack."""
    score, recovered = finding.score, finding.recovered
    unit = {"px": "within 5 px", "word": "right word", "descriptor": "within 0.1"}
    return {
        "attack": finding.attack,
        "assumes": finding.assumes,
        "skipped": sentence(finding.skipped, finding.remedy, say) if finding.skipped else "",
        "features": f"{finding.features:,}" + (f" of {finding.wanted:,} wanted" if finding.cut_short else ""),
        "undecided": _percent(finding.undecided, finding.features),
        "certified": "" if finding.certified is None else f"{100 * finding.certified.value:.1f} %",
        "exact": "" if score is None or score.exact is None else f"{100 * score.exact.value:.1f} %",
        "recovered": "" if recovered is None else f"{100 * recovered.value:.1f} %",
        "interval": "" if recovered is None else f"{recovered.interval} %",
        "what": "certified" if score is None else unit[score.unit],
        "bar": 0.0 if recovered is None else 100 * recovered.value,
        "whisker": _whisker(recovered),
        "distance": "" if score is None or score.median_distance is None else _distance(finding),
        "identified": "" if score is None or score.identified is None else f"{100 * score.identified.value:.1f} %",
        "notes": finding.notes,
        "seconds": f"{finding.seconds:.1f}",
    }


def _percent(count: int, total: int) -> str:
    """`count` as a percentage of `total`; empty for a total of 0."""
    return f"{100 * count / total:.0f} %" if total else ""


def _whisker(share: Share | None) -> tuple[float, float]:
    """Start and length, in percent, of the interval of a share."""
    return (0.0, 0.0) if share is None else (100 * share.low, 100 * (share.high - share.low))


def _distance(finding: Finding) -> str:
    """The median distance of a finding, with its unit."""
    assert finding.score is not None and finding.score.median_distance is not None
    value = finding.score.median_distance
    return f"{value:.0f} px" if finding.score.unit == "px" else f"{value:.2g}"


def _curves(findings: Sequence[Finding]) -> str | None:
    """Data URI of the figure of features that each attack recovers within each distance; None without originals."""
    scored = [f for f in findings if f.score is not None and f.score.unit != "px"]
    if not scored:
        return None
    with in_style():
        figure = new_figure((8.2, 4.3))
        axis = figure.subplots()
        for number, finding in enumerate(scored):
            assert finding.score is not None
            errors = np.sort(np.where(np.isfinite(finding.score.errors), finding.score.errors, np.inf))
            share = 100 * np.arange(1, len(errors) + 1) / len(errors)
            color, dash = SERIES[number % len(SERIES)], DASHES[number // len(SERIES) % len(DASHES)]
            axis.step(np.maximum(errors, 1e-6), share, where="post", color=color, linestyle=dash, label=finding.attack)
        axis.axvline(0.1, color=GRAY, linewidth=0.8, linestyle=":")
        axis.set(xscale="log", xlim=(1e-6, 2), ylim=(0, 101))
        axis.set_xlabel("distance of the estimate to the descriptor (two random descriptors are about 1 apart)")
        axis.set_ylabel("share of features, %")
        figure.legend(loc="outside right upper")
    return pictures.figure_picture(figure)


def position_pictures(outcome: Audit, name: str, message: Message, read_rgb: ReadRgb | None) -> Shown:
    """The row of pictures of one release: the photograph, the upload as the server gets it, and the best attack's result.

    The result shows features colored by how well they were recovered. The photograph is there if `read_rgb` is given and the
    originals are known.
    """
    size, image = (message.camera.width_px, message.camera.height_px), outcome.originals.get(name, "")
    titled: list[ShownPicture] = []
    if read_rgb is not None and image:
        uri = pictures.photograph(read_rgb(image))
        titled.append(ShownPicture(kind="photograph", title="the photograph: stays on the device", uri=uri))
    if isinstance(message, LineUpload):
        uri = pictures.lines_view(message.camera, message.lines)
        titled.append(ShownPicture(kind="sent", title="what is sent: a line through each keypoint", uri=uri))
    else:
        uri = pictures.server_view(*size, message.keypoints)
        titled.append(ShownPicture(kind="sent", title="what is sent in clear: positions of keypoints", uri=uri))
    best = outcome.recovered.get(name)
    if best is not None:
        title = (
            f"{best.attack} attack: green within 0.1 of the descriptor, orange within 0.4, gray not "
            f"({len(best.errors)} features attacked)"
        )
        uri = pictures.recovered_view(*size, best.keypoints, best.errors)
        titled.append(ShownPicture(kind="features", title=title, uri=uri))
    return Shown(name=name, image=image, pictures=tuple(titled))


def reconstructed_pictures(reconstructions: Sequence[DrawnPicture]) -> list[ShownPicture]:
    """The pictures that were reconstructed from one release."""
    titled = []
    for picture in reconstructions:
        measured = "" if picture.ssim is None else f", SSIM {picture.ssim:.2f} to the photograph"
        title = f"reconstructed from {picture.attack} ({picture.features} features{measured})"
        kind = "unprotected" if picture.attack == UNPROTECTED else "reconstructed"
        titled.append(ShownPicture(kind=kind, title=title, uri=pictures.photograph(picture.rgb)))
    return titled
