"""Sentence on what the order tests of all releases of an audit say together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from veil.attacks.claims import OrderEvidence
from veil.attacks.on_lines import ORDER_FALSE_ALARMS, ORDER_POWER


def order_note(evidence: Sequence[OrderEvidence]) -> str:
    """Sentence on whether the order of any release leaks (Bonferroni-corrected), and on the correlation that is detectable."""
    values = np.array([test.p_value for test in evidence])
    corrected = np.minimum(1.0, values * len(values))
    leaks = int((corrected <= ORDER_FALSE_ALARMS).sum())
    after = f" after correction for {len(values)} tests" if len(values) > 1 else ""
    if leaks:
        which = f"in {leaks} of {len(values)} releases" if len(values) > 1 else ""
        said = f"the order of the features is told from a random one {which}".strip()
        return f"{said}: it leaks (p = {corrected.min():.2g}{after})"
    detectable = max(test.detectable for test in evidence)
    if detectable >= 1:
        return f"too few features for the order to be told from a random one (p = {corrected.min():.2g}{after})"
    return (
        f"tested: whether positions have a trend along the order of the features, or neighbors in it are alike. Not told from "
        f"a random order (p = {corrected.min():.2g}{after}; {ORDER_FALSE_ALARMS:g} would tell it); a rank correlation of "
        f"{detectable:.2f} would have been seen with {100 * ORDER_POWER:.0f} %, smaller ones may be there"
    )
