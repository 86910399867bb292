"""The style of all figures, and what draws them in it: one palette, sizes of letters and lines, and how they are written.

Figures are made without pyplot, which keeps figures and a backend for the whole process.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from veil.files.atomic import replacing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Number = float | int

# The palette of Okabe and Ito ("Color Universal Design", 2008), which people with color deficiencies tell apart, too.
BLUE, VERMILION, GREEN, ORANGE = "#0072B2", "#D55E00", "#009E73", "#E69F00"
PURPLE, SKY, YELLOW, BLACK = "#CC79A7", "#56B4E9", "#F0E442", "#000000"
# What stands in the background: what is not accepted, chance, other data.
GRAY, LIGHT = "#777777", "#BBBBBB"
# In this order for what has no color of its own. Yellow is left out: it is too light for a line on white.
SERIES = (BLUE, VERMILION, GREEN, ORANGE, PURPLE, SKY, GRAY)
DASHES = ("-", "--", ":", "-.")
# Each way of lifting has one color in all figures.
LIFTINGS = {
    "random": GRAY,
    "adversarial": VERMILION,
    "hybrid": ORANGE,
    "hybrid+": SKY,
    "hybrid+, others only": PURPLE,
    "sub-adversarial": PURPLE,
    "sub-hybrid": BLUE,
    "hardened": GREEN,
}
DOTS_PER_INCH = 120
STYLE: dict[str, Any] = {
    "font.size": 9,
    "figure.titlesize": 11,
    "axes.titlesize": 10,
    "axes.labelsize": 9,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "legend.handlelength": 2.8,  # long enough to tell dashes
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.alpha": 0.3,
    "lines.linewidth": 1.6,
    "lines.markersize": 4,
    "errorbar.capsize": 3,
    "svg.hashsalt": "veil",  # the same figure is the same file
}


@contextmanager
def in_style(*, grid: Literal["both", "x", "y"] | None = "both") -> Iterator[None]:
    """A block in which figures are made and drawn in veil's style; `grid` says which lines stand behind the data."""
    import matplotlib

    style: Any = {**STYLE, "axes.grid": grid is not None, "axes.grid.axis": grid or "both"}
    with matplotlib.rc_context(style):
        yield


def new_figure(size: tuple[Number, Number], *, constrained: bool = True) -> Figure:
    """An empty figure of `size` (width and height in inches); `constrained`: its parts are moved so that none overlap."""
    from matplotlib.figure import Figure

    return Figure(figsize=size, dpi=DOTS_PER_INCH, layout="constrained" if constrained else None)


@contextmanager
def drawn(
    path: Path,
    rows: int = 1,
    columns: int = 1,
    *,
    size: tuple[Number, Number],
    grid: Literal["both", "x", "y"] | None = "both",
    title: str = "",
    **options: Any,
) -> Iterator[tuple[Figure, Any]]:
    """A block that draws a figure, which is written to `path` (PNG or SVG by its suffix) when the block ends well.

    - `rows`, `columns`: of panels; its value is the figure and an array (rows, columns) of their axes.
    - `size`: width and height in inches.
    - `grid`: which lines stand behind the data.
    - `title`: above all panels.
    - `options`: further ones of `matplotlib.figure.Figure.subplots`.

    Raises InputError if nothing can be written there.
    """
    with in_style(grid=grid):
        figure = new_figure(size)
        axes = figure.subplots(rows, columns, squeeze=False, **options)
        if title:
            figure.suptitle(title)
        yield figure, axes
        write_figure(path, figure)


def write_figure(path: Path, figure: Figure) -> None:
    """Write a figure at once or not at all, as PNG or SVG by its suffix. Raises InputError if it cannot be written."""
    metadata = {"Date": None} if path.suffix.lower() == ".svg" else None
    with in_style(), replacing(path) as temporary:
        figure.savefig(temporary, dpi=DOTS_PER_INCH, metadata=metadata)


def figure_bytes(figure: Figure, kind: Literal["jpg", "svg"]) -> bytes:
    """A figure as the bytes of a JPEG or an SVG."""
    buffer = io.BytesIO()
    settings: dict[str, Any] = {"metadata": {"Date": None}} if kind == "svg" else {"pil_kwargs": {"quality": 82}}
    with in_style():
        figure.savefig(buffer, format=kind, **settings)
    return buffer.getvalue()


def series(names: Sequence[str]) -> dict[str, str]:
    """A color for each name, in their order; after all colors the first follows again."""
    return {name: SERIES[number % len(SERIES)] for number, name in enumerate(dict.fromkeys(names))}


def draw_level(axis: Any, middle: Number, low: Number, high: Number, *, label: str) -> None:
    """Draw what does not depend on the horizontal axis: a black line at `middle`, and its interval shaded."""
    axis.axhline(middle, color=BLACK, label=label)
    axis.axhspan(low, high, color=BLACK, alpha=0.08, linewidth=0)


def draw_curve(
    axis: Any, x: Sequence[Number], middle: Sequence[Number], low: Sequence[Number], high: Sequence[Number], **style: Any
) -> None:
    """Draw a curve with marked points and the interval from `low` to `high` of each; `style` holds color, label, linestyle."""
    below = [max(0.0, value - least) for value, least in zip(middle, low, strict=True)]
    above = [max(0.0, most - value) for value, most in zip(middle, high, strict=True)]
    axis.errorbar(x, middle, yerr=[below, above], marker="o", **style)


def log2_axis(axis: Any, values: Sequence[Number]) -> None:
    """Make the horizontal axis logarithmic, with a tick at each of `values`."""
    axis.set_xscale("log", base=2)
    axis.set_xticks(list(values), [f"{value:g}" for value in values])
    axis.minorticks_off()


def log_ticks(low: float, high: float) -> list[float]:
    """Round numbers from below `low` to above `high`, as ticks: 1, 2, 5, 10, 20, ..., or powers of ten where those are many."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1, 2, 5) if len(powers) <= 5 else (1,)
    ticks = [step * 10.0**power for power in powers for step in steps]
    below, above = max(tick for tick in ticks if tick <= low), min((tick for tick in ticks if tick >= high), default=ticks[-1])
    return [tick for tick in ticks if below <= tick <= above] if below < above else [below, 2 * below]


def legend_below(figure: Figure, handles: Sequence[Any] | None = None, *, columns: int = 4) -> None:
    """Draw one legend for all panels below them, of `handles` or of all that is labeled, each label once."""
    if handles is None:
        labeled = [pair for axis in figure.axes for pair in zip(*axis.get_legend_handles_labels(), strict=True)]
        known = {label: handle for handle, label in reversed(labeled)}
        handles = [known[label] for label in dict.fromkeys(label for _, label in labeled)]
        labels = list(dict.fromkeys(label for _, label in labeled))
        figure.legend(handles, labels, loc="outside lower center", ncols=columns)
        return
    figure.legend(handles=list(handles), loc="outside lower center", ncols=columns)
