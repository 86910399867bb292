"""The sentences of the documentation are short, and the measure of their length is right."""

from __future__ import annotations

from pathlib import Path
from statistics import mean

import pytest

from extensions.sentences import LONG, length, pages, sentences

ROOT = Path(__file__).parents[1]


def test_sentences_are_told_apart() -> None:
    """Golden values: by hand. Code, tables, headings and equations are no sentences, and `et al.` ends none."""
    text = (
        "# No sentence. Nor this.\n\n"
        "One of Dusmanu et al. (CVPR 2021),\nwith [a link](README.md), `code. And more`. Two: *yes*.\n\n"
        "| no | table. Here |\n\n```sh\nno code. Here\n```\n\n$$x. Y\n$$\n\n- an item (Eq. 3)\n  of a list\n- `x`\n"
    )
    assert sentences(text) == [
        "One of Dusmanu et al. (CVPR 2021), with a link, Xx",
        "Two: *yes*.",
        "an item (Eq. 3) of a list",
    ]
    assert length("30 / 35 % of them (context)") == 5


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_sentences_of_a_page_are_short(page: Path) -> None:
    """At most 20 words in the mean and 30 in each (docs/style.md)."""
    lengths = {sentence: length(sentence) for sentence in sentences(page.read_text(encoding="utf-8"))}
    assert {sentence for sentence, number in lengths.items() if number > LONG} == set()
    assert mean(lengths.values() or [0]) <= 20
