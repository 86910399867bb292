"""Drawings of the charts of pages of results, as pictures that stand in the page itself."""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from veil.report.figures import DASHES, LIFTINGS, SERIES, draw_curve, figure_bytes, in_style, legend_below, new_figure, series
from veil_lab.results.charts import CHART, MOST_LINES, RecordChart, charts
from veil_lab.results.record import ResultRecord

SIZE_IN = (7.6, 3.9)
_OF_A_UNIT = re.compile(r"(-?\d[\d,]*(?:\.\d+)?) ?(\D*)")
# Places that are all named on the axis.
FEW_PLACES = 8
# Marks of one name stand apart by this share of the way to the next name, at most.
WIDEST = 0.15
# Letters that fit into one row of the legend, and those that the mark of a line takes.
LEGEND_LETTERS, LETTERS_OF_A_MARK = 130, 9
# Letters of the places on the horizontal axis above which their names are drawn aslant.
LEVEL_LETTERS = 60


def with_charts(text: str, records: Mapping[str, ResultRecord]) -> str:
    """A page with the drawing of each of its charts in place of the block. Raises InputError as `charts` does."""
    drawn = iter([picture(chart) for _, chart in charts(text, records)])
    return CHART.sub(lambda _: next(drawn), text)


def picture(chart: RecordChart) -> str:
    """The drawing of a chart as an image of HTML that holds its own data."""
    encoded = base64.b64encode(figure_bytes(_figure(chart), "svg")).decode()
    told = html.escape(f"{chart.y} by {chart.x}: {'; '.join(filter(None, chart.lines)) or 'one line'}", quote=True)
    return f'<p class="chart"><img alt="{told}" src="data:image/svg+xml;base64,{encoded}"></p>'


def _figure(chart: RecordChart) -> Any:
    """The matplotlib figure: numbers have their places on the axis, names stand side by side."""
    numbers = _numbers(chart)
    at = {place: float(number) for number, place in enumerate(chart.places)} if numbers is None else numbers
    beside = np.linspace(-WIDEST, WIDEST, len(chart.lines)) if numbers is None and len(chart.lines) > 1 else [0.0] * MOST_LINES
    own = series([line for line in chart.lines if line not in LIFTINGS])
    with in_style():
        figure = new_figure(SIZE_IN)
        axis = figure.subplots()
        for number, (line, points) in enumerate(chart.lines.items()):
            ordered = sorted(points, key=lambda point: at[point.x])
            x, y = [at[point.x] + beside[number] for point in ordered], [point.y for point in ordered]
            style: dict[str, Any] = {
                "color": LIFTINGS.get(line) or own[line],
                "linestyle": "" if numbers is None else DASHES[number // len(SERIES) % len(DASHES)],
                "label": line or None,
            }
            if any(point.interval for point in ordered):
                ends = [point.interval or (point.y, point.y) for point in ordered]
                draw_curve(axis, x, y, [low for low, _ in ends], [high for _, high in ends], **style)
            else:
                axis.plot(x, y, marker="o", **style)
        if numbers is None or "x" in chart.log or len(numbers) <= FEW_PLACES:
            if "x" in chart.log and numbers is not None:
                axis.set_xscale("log")
                axis.minorticks_off()
            axis.set_xticks(list(at.values()), list(at))
            if sum(map(len, at)) > LEVEL_LETTERS:
                axis.tick_params(axis="x", labelrotation=30)
                for label in axis.get_xticklabels():
                    label.set_horizontalalignment("right")
        if "y" in chart.log:
            axis.set_yscale("log")
        axis.set_xlabel(chart.x)
        axis.set_ylabel(chart.y)
        if any(chart.lines):
            widest = max(map(len, chart.lines))
            legend_below(figure, columns=max(1, min(4, len(chart.lines), LEGEND_LETTERS // (widest + LETTERS_OF_A_MARK))))
            figure.legends[0].set_title(chart.told_by)
        return figure


def _numbers(chart: RecordChart) -> dict[str, float] | None:
    """The places of the horizontal axis as numbers, if all are numbers of one unit; None if some are names."""
    parts = {place: _OF_A_UNIT.fullmatch(place) for place in chart.places}
    if len({part and part[2] for part in parts.values()}) > 1 or not all(parts.values()):
        return None
    return {place: float(part[1].replace(",", "")) for place, part in parts.items() if part}
