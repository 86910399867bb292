"""What an epsilon of words means: the probability that the true word is sent, and the epsilon of an image, beside it.

Tables and sentences have epsilon alone, from which neither is seen without K and m. Both follow from the law, so that no run
has to print them (docs/theory/words.md, Eq. 2 and 8). A file of its own: pages know nothing of what their cells say.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from veil.errors import InputError, RangeError
from veil.ldp.composition import composed_epsilon
from veil.ldp.mechanism import SubsetMechanism
from veil.ldp.rounding import outward, outward_percent
from veil_lab.results.record import ResultTable

TRUE_WORD, OF_IMAGE = "true word sent", "epsilon of the image"
# Heads of columns by the values that they hold, and heads of columns that print already what would be computed. A column
# `features` is not among them: tables of attacks count there the features that were attacked, not those that one image sent.
_HEADS = {"K": "words", "epsilon": "epsilon", "epsilon a feature": "epsilon", "m": "m", "features of the image": "features"}
_PRINTED = {TRUE_WORD: {TRUE_WORD, "true word, %"}, OF_IMAGE: {OF_IMAGE, "epsilon of image", "of the image"}}
_ASKED = re.compile(rf"({TRUE_WORD}|{OF_IMAGE})((?:, (?:words|epsilon|m|features) \d[\d.]*)*)")


def law_told(settings: Mapping[str, str], asked: str) -> str | None:
    """What a citation asks of a law, as "true word sent, epsilon 5, words 256000"; None if it asks for something else.

    The `settings` of a record give what the citation does not: `words` (K), `epsilon`, `m`, and for the image its `features`
    and `delta`. Raises InputError if one of them is in neither.
    """
    found = _ASKED.fullmatch(asked)
    if found is None:
        return None
    cell = _cell(found[1], {**settings, **dict(part.split(" ") for part in found[2].split(", ")[1:])})
    if cell is None:
        raise InputError(f"{asked!r} needs words, epsilon and m, and of an image features and delta, as settings or by name")
    return cell


def with_law(table: ResultTable, settings: Mapping[str, str]) -> ResultTable:
    """The table with columns of what its epsilons mean, where K and m are in its columns or in `settings`.

    The number of features that an image sends is in a column `features of the image`, or in the setting `features`.
    A table without epsilons of words stays as it is, and so does a column that is printed already. But epsilons of the image
    are computed anew, as commands rounded them to the nearest number once.
    """
    if not {"epsilon", "epsilon a feature"} & set(table.columns):
        return table
    values = [
        {**settings, **{_HEADS[head]: cell for head, cell in zip(table.columns, row, strict=True) if head in _HEADS}}
        for row in table.rows
    ]
    told = {name: [_cell(name, row) for row in values] for name in _PRINTED if not _PRINTED[name] & set(table.columns)}
    added = {name: [cell or "-" for cell in cells] for name, cells in told.items() if any(cells)}
    behind = 1 + max(number for number, head in enumerate(table.columns) if head in _HEADS)
    kept = [
        [(head in _PRINTED[OF_IMAGE] and _cell(OF_IMAGE, row)) or cell for head, cell in zip(table.columns, cells, strict=True)]
        for cells, row in zip(table.rows, values, strict=True)
    ]
    rows = zip(kept, zip(*added.values(), strict=True) if added else [()] * len(table.rows), strict=True)
    return ResultTable(
        columns=(*table.columns[:behind], *added, *table.columns[behind:]),
        rows=tuple((*row[:behind], *cells, *row[behind:]) for row, cells in rows),
    )


def _cell(name: str, values: Mapping[str, str]) -> str | None:
    """The probability in percent or the epsilon of the image, rounded up; None where a value is missing or no number."""
    try:
        words, m = (int(values[key].replace(",", "")) for key in ("words", "m"))
        law = SubsetMechanism(dictionary_size=words, epsilon=float(values["epsilon"].replace("∞", "inf")), m=m)
        if name == TRUE_WORD:
            return f"{outward_percent(float(law.truth))} %"
        features = int(values["features"].replace(",", ""))
        return outward(composed_epsilon({law: features}, float(values["delta"])))
    except (KeyError, ValueError, RangeError):
        return None
