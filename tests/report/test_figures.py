"""Every figure in one style: nothing lies over anything else, and no module has colors, sizes or ways to write of its own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from veil.errors import InputError
from veil.report import figures
from veil.report.figures import LIFTINGS, SERIES, drawn, legend_below, series
from worlds.figure_checks import faults, own_styles, require_legible
from worlds.figure_rows import FIGURES

REPORT = Path(figures.__file__).parent


@pytest.mark.slow
@pytest.mark.parametrize("name", FIGURES)
def test_nothing_written_lies_over_anything_else(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With planted rows of as many curves and as long names as there may be. Oracle: the boxes that the renderer gives them."""
    require_legible(FIGURES[name], tmp_path, monkeypatch)


def test_what_lies_over_something_is_seen(tmp_path: Path) -> None:
    """Broken twin: two notes at one place, and one that leaves the figure."""
    with drawn(tmp_path / "f.png", size=(3, 2)) as (figure, axes):
        axes[0, 0].text(0.4, 0.5, "one")
        axes[0, 0].text(0.41, 0.52, "two")
        figure.text(0.9, 0.1, "a text that is far too long")
    assert faults(figure) == ["'a text that is far too long' leaves the figure", "'one' lies over 'two'"]


def test_no_module_has_a_style_of_its_own() -> None:
    assert own_styles(path for path in REPORT.glob("*.py") if path.name != "figures.py") == {}
    assert own_styles([REPORT / "figures.py"])  # the pattern finds a style where there is one


def test_a_figure_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "f.png"
    path.write_text("precious")
    with pytest.raises(ZeroDivisionError), drawn(path, size=(2, 1)):
        raise ZeroDivisionError
    assert path.read_text() == "precious" and list(tmp_path.iterdir()) == [path]
    with pytest.raises(InputError, match="cannot write"), drawn(tmp_path / "f.png" / "g.png", size=(2, 1)):
        pass


@pytest.mark.slow
def test_the_same_figure_is_the_same_file(tmp_path: Path) -> None:
    """SVG would name the time of day and random ids."""
    for name in ("a", "b"):
        for suffix in ("svg", "png"):
            with drawn(tmp_path / f"{name}.{suffix}", 1, 2, size=(4, 2), title="t") as (figure, axes):
                axes[0, 0].plot([1, 2], label="x")
                axes[0, 1].plot([2, 1], label="x")
                axes[0, 1].plot([2, 3], label="y")
                legend_below(figure)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    assert [text.get_text() for legend in figure.legends for text in legend.get_texts()] == ["x", "y"]
    with Image.open(tmp_path / "a.png") as picture:
        assert picture.size == (4 * figures.DOTS_PER_INCH, 2 * figures.DOTS_PER_INCH)


def test_colors_are_told_apart_by_everyone() -> None:
    """Oracle: the palette as Okabe and Ito print it, in sRGB; and contrast with white, by which lines are seen at all."""
    palette = {"#000000", "#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7"}
    assert set(SERIES) - {figures.GRAY} <= palette and set(LIFTINGS.values()) - {figures.GRAY} <= palette
    assert len(set(SERIES)) == len(SERIES)
    for color in {*SERIES, *LIFTINGS.values()}:
        channels = np.array([int(color[k : k + 2], 16) for k in (1, 3, 5)]) / 255
        light = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4) @ [0.2126, 0.7152, 0.0722]
        assert 1.05 / (light + 0.05) > 2, color
    assert series(["b", "a", "b"]) == {"b": SERIES[0], "a": SERIES[1]}
