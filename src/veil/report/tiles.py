"""The figure of `veil evaluate tiles`: accuracy against the bytes of a tile, and what a localization fetches."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from veil.files.atomic import replacing
from veil.studies.localization.tile_localization import TileRow

_COLORS = {(64, 8): "#1d4ed8", (64, 4): "#c2410c", (48, 8): "#15803d", (48, 4): "#7e22ce"}
_MARKERS = "osD^vP*X<>"
_DASHES = ("-", "--", ":", "-.")
# What a localization from tiles must reach beside the whole raw map.
NEEDED_SHARE, ALLOWED_RATIO = 0.99, 1.1
LABELS = (
    "median position error, of the raw map's",
    "localized, % of what the raw map does",
    "kB fetched by a localization",
)


def draw_tiles(path: Path, rows: Sequence[TileRow]) -> None:
    """Write the figure (PNG or SVG by its suffix): ratio of median errors, share localized and bytes fetched, by tile."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 3, figsize=(15, 4.2), layout="constrained")
    scenes = list(dict.fromkeys(row.scene for row in rows))
    asked = sorted({row.setting.asked for row in rows}, reverse=True)
    for coding in dict.fromkeys((row.setting.axes, row.setting.bits, row.setting.asked) for row in rows):
        for number, scene in enumerate(scenes):
            own = [row for row in rows if row.scene == scene and row.error_ratio is not None]
            own = [row for row in own if (row.setting.axes, row.setting.bits, row.setting.asked) == coding]
            own = sorted(own, key=lambda row: row.setting.tile_bytes)
            _draw(axes, own, number, alone=len(scenes) == 1, dash=_DASHES[asked.index(coding[2]) % len(_DASHES)])
    axes[0].axhline(ALLOWED_RATIO, color="black", linewidth=1, linestyle="--")
    axes[1].axhline(100 * NEEDED_SHARE, color="black", linewidth=1, linestyle="--")
    axes[1].set_ylim(min(90.0, axes[1].get_ylim()[0]), 100.5)
    axes[2].set_yscale("log")
    for axis, label in zip(axes, LABELS, strict=True):
        axis.set_xscale("log", base=2)
        axis.set_xticks(sorted({row.setting.tile_bytes for row in rows}))
        axis.xaxis.set_major_formatter(lambda value, _: f"{value / 1024:g}")
        axis.set_xlabel("KiB of a tile")
        axis.set_ylabel(label)
        axis.grid(alpha=0.3)
    figure.legend(fontsize=8, frameon=False, ncols=4, loc="outside lower center")
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=130)
    pyplot.close(figure)


def _draw(axes: Sequence[Any], own: Sequence[TileRow], number: int, *, alone: bool, dash: str) -> None:
    """Draw one scene with one coding of descriptors; of several scenes all together are drawn thick."""
    if not own:
        return
    setting, thick = own[0].setting, alone or own[0].scene == "all"
    color = _COLORS.get((setting.axes, setting.bits), "#6b7280")
    style = {
        "color": color,
        "marker": _MARKERS[number % len(_MARKERS)],
        "markersize": 6 if thick else 4,
        "linewidth": 2 if thick else 0.7,
        "linestyle": dash,
        "alpha": 1.0 if thick else 0.5,
    }
    x = [row.setting.tile_bytes for row in own]
    told = f"{own[0].scene}, {setting.axes} axes of {setting.bits} bits, {setting.asked} asked"
    axes[0].plot(x, [row.error_ratio for row in own], label=told if thick else None, **style)
    axes[1].plot(x, [100 * row.localized / max(row.raw_localized, 1) for row in own], **style)
    axes[2].plot(x, [row.fetched_bytes / 1000 for row in own], **style)
