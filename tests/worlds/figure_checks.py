"""Checks of figures: nothing lies over anything else, and no module has colors, sizes or ways to write of its own."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

# Marks of a style of one's own, outside of the module that has it.
OWN_STYLE = r"savefig|pyplot|matplotlib\.use|#[0-9A-Fa-f]{6}\b|frameon|constrained_layout|\bdpi="


def ticks(axis: Any) -> list[Any]:
    """Labels of the ticks that an axis shows; those beyond its ends have labels that nobody sees."""
    low, high = sorted(axis.get_view_interval())
    all_ticks = (*axis.get_major_ticks(), *axis.get_minor_ticks())
    return [tick.label1 for tick in all_ticks if low <= tick.get_loc() <= high and tick.label1.get_visible()]


def texts(figure: Any) -> list[tuple[str, Any]]:
    """All that is written in a figure, with the boxes that the renderer gives it."""
    figure.draw_without_rendering()
    labels, legends = list(figure.texts), list(figure.legends)
    for axis in figure.axes:
        labels += [axis.title, *axis.texts]
        if axis.axison:
            labels += [axis.xaxis.label, axis.yaxis.label, *ticks(axis.xaxis), *ticks(axis.yaxis)]
        legends += [axis.get_legend()] if axis.get_legend() else []
    labels += [text for legend in legends for text in legend.get_texts()]
    return [(text.get_text(), text.get_window_extent()) for text in labels if text.get_text() and text.get_visible()]


def faults(figure: Any) -> list[str]:
    """Texts that leave the figure or lie over each other."""
    boxes = texts(figure)
    left = [f"{told!r} leaves the figure" for told, box in boxes if not _within(box, figure.bbox)]
    over = [f"{a!r} lies over {b!r}" for (a, one), (b, two) in combinations(boxes, 2) if one.overlaps(two.shrunk(0.98, 0.9))]
    return left + over


def _within(box: Any, whole: Any) -> bool:
    return box.x0 > whole.x0 - 1 and box.y0 > whole.y0 - 1 and box.x1 < whole.x1 + 1 and box.y1 < whole.y1 + 1


def require_legible(
    draw: Callable[[Path], None], folder: Path, monkeypatch: pytest.MonkeyPatch, *, also_writes: str | None = None
) -> None:
    """Fail unless nothing written in a figure lies over anything else. `also_writes` names a function that writes figures."""
    kept: list[Any] = []
    for place in ("veil.report.figures.write_figure", *([also_writes] if also_writes else [])):
        monkeypatch.setattr(place, lambda path, figure: kept.append(figure))
    draw(folder / "f.png")
    (figure,) = kept
    assert faults(figure) == []


def own_styles(paths: Iterable[Path]) -> dict[str, list[str]]:
    """Marks of a style of its own in each module that has some."""
    return {path.name: marks for path in sorted(paths) if (marks := re.findall(OWN_STYLE, path.read_text()))}
