"""The figure of `veil evaluate tiles`: accuracy against the bytes of a tile, what a localization fetches, and other forms."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from veil.report.figures import BLACK, BLUE, DASHES, GRAY, GREEN, PURPLE, VERMILION, drawn, legend_below, log_ticks
from veil_lab.studies.localization.tile_localization import TileFormRow, TileRow

_COLORS = {(64, 8): BLUE, (64, 4): VERMILION, (48, 8): GREEN, (48, 4): PURPLE}
_MARKERS = "osD^vP*X<>"
# What a localization from tiles must reach beside the whole raw map.
NEEDED_SHARE, ALLOWED_RATIO = 0.99, 1.1
LABELS = (
    "median position error, of the raw map's",
    "localized, % of what the raw map does",
    "kB fetched by a localization",
)


def draw_tiles(path: Path, rows: Sequence[TileRow], forms: Sequence[TileFormRow] = ()) -> None:
    """Write the figure (PNG or SVG by its suffix): ratio of median errors, share localized and bytes fetched, by tile.

    With `forms` a further part shows the ratio of errors against the bytes of a localization for each of them and for tiles, of
    all scenes together.
    """
    parts = 4 if forms else 3
    with drawn(path, 1, parts, size=(5 * parts, 4.4)) as (figure, axes):
        _draw_tiles(list(axes[0]), rows)
        if forms:
            _draw_forms(axes[0, 3], rows, forms)
        legend_below(figure)


def _draw_tiles(axes: Sequence[Any], rows: Sequence[TileRow]) -> None:
    """Draw the three panels against the bytes of a tile."""
    scenes = list(dict.fromkeys(row.scene for row in rows))
    asked = sorted({row.setting.asked for row in rows}, reverse=True)
    for coding in dict.fromkeys((row.setting.axes, row.setting.bits, row.setting.asked) for row in rows):
        for number, scene in enumerate(scenes):
            own = [row for row in rows if row.scene == scene and row.beside.error_ratio is not None]
            own = [row for row in own if (row.setting.axes, row.setting.bits, row.setting.asked) == coding]
            own = sorted(own, key=lambda row: row.setting.tile_bytes)
            _draw(axes, own, number, alone=len(scenes) == 1, dash=DASHES[asked.index(coding[2]) % len(DASHES)])
    axes[0].axhline(ALLOWED_RATIO, color=BLACK, linewidth=1, linestyle="--")
    axes[1].axhline(100 * NEEDED_SHARE, color=BLACK, linewidth=1, linestyle="--")
    axes[1].set_ylim(min(90.0, axes[1].get_ylim()[0]), 100.5)
    axes[2].set_yscale("log")
    fetched = [row.fetched_bytes / 1000 for row in rows]
    ticks = log_ticks(min(fetched), max(fetched))
    axes[2].set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axes[2].minorticks_off()
    for axis, label in zip(axes, LABELS, strict=False):
        axis.set_xscale("log", base=2)
        axis.set_xticks(sorted({row.setting.tile_bytes for row in rows}))
        axis.xaxis.set_major_formatter(lambda value, _: f"{value / 1024:g}")
        axis.set_xlabel("KiB of a tile")
        axis.set_ylabel(label)


def _draw(axes: Sequence[Any], own: Sequence[TileRow], number: int, *, alone: bool, dash: str) -> None:
    """Draw one scene with one coding of descriptors; of several scenes all together are drawn thick."""
    if not own:
        return
    setting, thick = own[0].setting, alone or own[0].scene == "all"
    color = _COLORS.get((setting.axes, setting.bits), GRAY)
    style = {
        "color": color,
        "marker": _MARKERS[number % len(_MARKERS)],
        "markersize": 6 if thick else 4,
        "linewidth": 2 if thick else 0.7,
        "linestyle": dash,
        "alpha": 1.0 if thick else 0.5,
    }
    x = [row.setting.tile_bytes for row in own]
    label = f"{own[0].scene}, {setting.axes} axes of {setting.bits} bits, {setting.asked} asked"
    axes[0].plot(x, [row.beside.error_ratio for row in own], label=label if thick else None, **style)
    axes[1].plot(x, [100 * row.beside.localized / max(row.beside.raw_localized, 1) for row in own], **style)
    axes[2].plot(x, [row.fetched_bytes / 1000 for row in own], **style)


def _draw_forms(axis: Any, rows: Sequence[TileRow], forms: Sequence[TileFormRow]) -> None:
    """Draw the ratio of errors against bytes for each form and each setting of tiles, of all scenes together."""
    last = forms[-1].scene
    for form in (item for item in forms if item.scene == last and item.beside.error_ratio is not None):
        place = (form.upload_bytes / 1000, form.beside.error_ratio)
        axis.plot(*place, "ks", markersize=5)
        axis.annotate(form.form, place, xytext=(0, 6), textcoords="offset points", ha="center", fontsize=8)
    for row in (item for item in rows if item.scene == last and item.beside.error_ratio is not None):
        color = _COLORS.get((row.setting.axes, row.setting.bits), GRAY)
        axis.plot((row.up_bytes + row.down_bytes) / 1000, row.beside.error_ratio, "o", color=color, markersize=6)
    axis.axhline(ALLOWED_RATIO, color=BLACK, linewidth=1, linestyle="--")
    axis.set_xscale("log")
    known = [*(form.upload_bytes for form in forms), *(row.up_bytes + row.down_bytes for row in rows)]
    ticks = log_ticks(min(known) / 1000, 2 * max(known) / 1000)  # names stand to the right of what they name
    axis.set_xlim(ticks[0], ticks[-1])
    axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.minorticks_off()
    axis.set_xlabel("kB of a localization, up and down (circles: tiles from two servers)")
    axis.set_ylabel(LABELS[0])
