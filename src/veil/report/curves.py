"""Figures of mean matching accuracy against the pixel threshold: of liftings (Dusmanu et al. 2021, Fig. 2), of descriptors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from veil.files.atomic import replacing

# One hue a strategy, darker with larger m: readable in print and with the common color deficiencies (Okabe-Ito).
_COLORS = {
    "random": "#999999",
    "adversarial": "#D55E00",
    "hybrid": "#E69F00",
    "sub-adversarial": "#CC79A7",
    "sub-hybrid": "#0072B2",
}
_HARDENED = "#009E73"
_DESCRIPTORS = ("#0072B2", "#E69F00", "#D55E00", "#009E73", "#CC79A7")
_DASHES: dict[int, Literal["-", "--", "-.", ":"]] = {2: "-", 4: "--", 8: "-.", 16: ":"}


def draw_accuracy(path: Path, rows: Sequence[dict], *, title: str) -> None:
    """Write the figure (PNG or SVG by its suffix); `rows` are records as in the JSON of `veil evaluate homographies`."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    columns = [("p2s", "paper"), ("s2s", "paper"), ("p2s", "real"), ("s2s", "real")]
    figure, axes = plt.subplots(1, 4, figsize=(15, 4.6), sharey=True, constrained_layout=True)
    for axis, (distance, profile) in zip(axes, columns, strict=True):
        _panel(axis, rows, distance, profile)
    axes[0].set_ylabel("mean matching accuracy")
    _legend(figure, rows)
    figure.suptitle(title, fontsize=11)
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=120)
    plt.close(figure)


def _panel(axis, rows: Sequence[dict], distance: str, profile: str) -> None:  # type: ignore[no-untyped-def]
    """Draw the curves of one distance and profile, with those of raw descriptors and of the hardened profile."""
    for row in rows:
        thresholds = [int(t) for t in row["mma"]]
        values = list(row["mma"].values())
        if row["profile"] == "raw":
            axis.plot(thresholds, values, color="black", linewidth=2.5)
        elif row["distance"] == distance and row["profile"] == "hardened":
            axis.plot(thresholds, values, color=_HARDENED, linewidth=2.5)
        elif row["distance"] == distance and row["profile"] == profile:
            axis.plot(
                thresholds,
                values,
                color=_COLORS.get(row["lifting"], "black"),
                linestyle=_DASHES.get(row["m"], "-"),
                linewidth=1.4,
            )
    name = "point-to-subspace" if distance == "p2s" else "subspace-to-subspace"
    axis.set_title(f"{name}\n{'centroids as decoys (paper)' if profile == 'paper' else 'real descriptors as decoys'}")
    axis.set_xlabel("threshold [px]")
    axis.set_xlim(1, 10)
    axis.set_ylim(0, 1)
    axis.grid(alpha=0.3)


def _legend(figure, rows: Sequence[dict]) -> None:  # type: ignore[no-untyped-def]
    """Draw one legend for all panels: colors are liftings, dashes are dimensions."""
    from matplotlib.lines import Line2D

    hardened_m = next((row["m"] for row in rows if row["profile"] == "hardened"), None)
    handles = [Line2D([], [], color="black", linewidth=2.5, label="raw")]
    if hardened_m is not None:
        handles.append(Line2D([], [], color=_HARDENED, linewidth=2.5, label=f"hardened (m = {hardened_m})"))
    used = {row["lifting"] for row in rows if row["profile"] not in ("raw", "hardened")}
    handles += [Line2D([], [], color=color, label=name) for name, color in _COLORS.items() if name in used]
    dims = sorted({row["m"] for row in rows if row["profile"] not in ("raw", "hardened")})
    handles += [Line2D([], [], color="#555555", linestyle=_DASHES.get(m, "-"), label=f"m = {m}") for m in dims]
    figure.legend(handles=handles, loc="outside lower center", ncol=len(handles), fontsize=9, frameon=False)


def draw_descriptors(path: Path, rows: Sequence[dict], *, title: str) -> None:
    """Write the figure of several descriptors (PNG or SVG by its suffix), a curve a row and a panel a form.

    `rows` are records as in the JSON of `veil evaluate homographies --descriptor`. Broken lines are between two images of the
    same form, others against a raw image.
    """
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.lines import Line2D

    panels = {"raw": "raw", "hardened": "hardened subspaces", "words": "words"}
    colors = dict(zip(dict.fromkeys(row["descriptor"] for row in rows), _DESCRIPTORS * len(rows), strict=False))
    figure, axes = plt.subplots(1, 3, figsize=(12, 4.6), sharey=True, constrained_layout=True)
    for axis, (profile, name) in zip(axes, panels.items(), strict=True):
        for row in rows:
            if row["profile"] == profile:
                line = "--" if row["distance"] in ("s2s", "w2w") else "-"
                thresholds = [int(t) for t in row["mma"]]
                axis.plot(thresholds, list(row["mma"].values()), line, color=colors[row["descriptor"]], linewidth=1.8)
        axis.set_title(name)
        axis.set_xlabel("threshold [px]")
        axis.set_xlim(1, 10)
        axis.set_ylim(0, 1)
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("mean matching accuracy")
    handles = [Line2D([], [], color=color, linewidth=3, label=name) for name, color in colors.items()]
    handles.append(Line2D([], [], color="#555555", linestyle="-", label="against a raw image"))
    handles.append(Line2D([], [], color="#555555", linestyle="--", label="against an image in the same form"))
    figure.legend(handles=handles, loc="outside lower center", ncol=len(handles), fontsize=9, frameon=False)
    figure.suptitle(title, fontsize=11)
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=120)
    plt.close(figure)
