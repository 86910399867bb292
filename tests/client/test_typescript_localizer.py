"""The localizer in TypeScript: its vectors are what Python computes. Its own tests compare it with them in Node.js."""

from __future__ import annotations

import json
from typing import Any

import pytest

from worlds.typescript_localizer import PATH, vectors


@pytest.mark.slow
def test_the_localizers_vectors_are_what_python_computes() -> None:
    """Golden file with its formula: `worlds.typescript_localizer` computes it anew. Broken twin: a file with one pose moved."""
    written = json.loads(PATH.read_text())
    computed = vectors()
    assert not differences(written, computed)
    written["queries"][0]["answer"]["camFromWorld"]["translation"][0] += 0.01
    assert differences(written, computed) == ["queries.0.answer.camFromWorld.translation.0"]


def differences(written: Any, computed: Any, where: str = "") -> list[str]:
    """Names of the values that differ by more than the rounding of another processor."""
    if isinstance(written, dict) and isinstance(computed, dict) and written.keys() == computed.keys():
        pairs = [(key, written[key], computed[key]) for key in written]
    elif isinstance(written, list) and isinstance(computed, list) and len(written) == len(computed):
        pairs = [(str(number), one, other) for number, (one, other) in enumerate(zip(written, computed, strict=True))]
    elif isinstance(written, float) and isinstance(computed, float):
        return [] if written == pytest.approx(computed, rel=1e-4, abs=1e-5) else [where]
    else:
        return [] if written == computed else [where]
    return [name for key, one, other in pairs for name in differences(one, other, f"{where}.{key}".lstrip("."))]
