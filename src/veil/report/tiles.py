"""The figure of `veil evaluate tiles`: how accuracy falls with the bytes that a localization fetches."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from veil.files.atomic import replacing
from veil.studies.localization.tile_localization import TileRow

_COLORS = {(64, 8): "#1d4ed8", (64, 4): "#c2410c", (48, 8): "#15803d", (48, 4): "#7e22ce"}
_MARKERS = "osD^vP*X<>"
# What a localization from tiles must reach beside the whole raw map.
NEEDED_SHARE, ALLOWED_RATIO = 0.99, 1.1


def draw_tiles(path: Path, rows: Sequence[TileRow]) -> None:
    """Write the figure (PNG or SVG by its suffix): the ratio of median errors, and the share localized, against bytes."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(12, 4.4), layout="constrained")
    scenes = list(dict.fromkeys(row.scene for row in rows))
    for coding in dict.fromkeys((row.setting.axes, row.setting.bits) for row in rows):
        for number, scene in enumerate(scenes):
            own = [row for row in rows if (row.setting.axes, row.setting.bits) == coding and row.scene == scene]
            own = sorted((row for row in own if row.error_ratio is not None), key=lambda row: row.fetched_bytes)
            _draw(left, right, own, coding, number, alone=len(scenes) == 1)
    left.axhline(ALLOWED_RATIO, color="black", linewidth=1, linestyle="--")
    right.axhline(100 * NEEDED_SHARE, color="black", linewidth=1, linestyle="--")
    left.set_ylabel("median position error, of the whole raw map's")
    right.set_ylabel("localized, % of those that the raw map localizes")
    for axis in (left, right):
        axis.set_xscale("log", base=2)
        axis.set_xlabel("kB fetched by a localization")
        axis.grid(alpha=0.3)
    left.legend(fontsize=7, frameon=False, ncols=2)
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=130)
    pyplot.close(figure)


def _draw(left: Any, right: Any, own: Sequence[TileRow], coding: tuple[int, int], number: int, *, alone: bool) -> None:
    """Draw one scene with one coding of descriptors; of several scenes their sum is drawn thick."""
    if not own:
        return
    thick = alone or own[0].scene == "all"
    axes, bits = coding
    style = {
        "color": _COLORS.get(coding, "#6b7280"),
        "marker": _MARKERS[number % len(_MARKERS)],
        "markersize": 5 if thick else 3,
        "linewidth": 2 if thick else 0.7,
        "alpha": 1.0 if thick else 0.45,
    }
    x = [row.fetched_bytes / 1000 for row in own]
    left.plot(
        x, [row.error_ratio for row in own], label=f"{own[0].scene}, {axes} axes of {bits} bits" if thick else None, **style
    )
    right.plot(x, [100 * row.localized / max(row.raw_localized, 1) for row in own], **style)
