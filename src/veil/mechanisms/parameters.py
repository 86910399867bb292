"""Parameters of releases, encoded explicitly and by version: one encoding keys the draws and is compared by the ledger.

Two different releases of one photograph give it away where they intersect (release.md#memoized-draws). So equal choices must
give equal draws for ever, and whatever changes a draw must change what the ledger compares. Neither may depend on how code
happens to be spelled or on what `repr` prints: version 1 names every choice here, in the bytes that veil 0.1 drew by. Version 1
is never edited. A choice that it has no place for is refused, until there is a version that has one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from veil.codebooks.compression import Compression
from veil.errors import ReleaseRefused
from veil.ldp.mechanism import SubsetMechanism
from veil.mechanisms.selection import ChosenFeatures, Selection

if TYPE_CHECKING:
    from veil.codebooks.codebook import Codebook
    from veil.mechanisms.lines import LineOptions
    from veil.mechanisms.profile import Profile

VERSION = 1
# Numbers of the rules by which draws make messages. Another rule gets another number, and gives another release.
SUBSPACE_RULE, WORD_RULE, LINE_RULE, SELECTION_RULE = 1, 1, 1, 1
SCORED_SELECTION_RULE = 2  # the detector's scores have a say
CHOSEN_RULE = 3  # features were chosen one by one
# Lines of the two halves of a picture (`veil.geometry.anchors`): nothing is drawn, the rule and the image say all.
CONVERGENT_RULE, PARALLEL_RULE = 2, 3

_PROFILE = ("name", "strategy", "m", "decoys", "directions", "dither_steps", "compress", "dtype")
_LINES = ("aligned_share",)
_WORDS = ("dictionary_size", "epsilon", "m")
_SELECTION = ("features", "min_distance_px")
_VALUES = {
    "strategy": ("random", "adversarial", "hybrid", "sub-adversarial", "sub-hybrid"),
    "decoys": ("centroids", "descriptors"),
    "directions": ("gaussian", "cube"),
    "dtype": ("float16", "float32"),
}


@dataclass(frozen=True)
class Parameters:
    """Encoded choices of one release.

    - `draws`: the bytes that open the context of every draw.
    - `text`: what the ledger compares and shows. It holds a digest of `draws`, so that whatever changes `draws` changes `text`.
    """

    draws: bytes
    text: str


def subspace_parameters(
    profile: Profile, *, compression: Compression, decoys: Codebook, slice_index: int | None, rule: Iterable[bytes]
) -> Parameters:
    """Parameters of a lift to subspaces.

    - `profile`: the profile of the lift.
    - `compression`: what compresses, which counts by the digest of its codebook even where the profile does not compress.
    - `decoys`: the codebook that decoys are drawn from, which counts by its digest.
    - `slice_index`: the image's sub-database of decoys, None where the strategy uses none.
    - `rule`: the identity of the rule of decoys for each feature (`DecoyRule.identity`). It ends the feature's context, after
      `draws`.

    Raises ReleaseRefused for a profile that version 1 cannot express.
    """
    _require_fields(profile, _PROFILE)
    for name, values in _VALUES.items():
        if getattr(profile, name) not in values:
            raise _inexpressible(f"{name} {getattr(profile, name)!r} of a profile")
    head = (
        f"Profile(name={_quoted(profile.name)}, strategy={_quoted(profile.strategy)}, m={int(profile.m)}, "
        f"decoys={_quoted(profile.decoys)}, directions={_quoted(profile.directions)}, "
        f"dither_steps={_number(profile.dither_steps)}, compress={_flag(profile.compress)}, dtype={_quoted(profile.dtype)})"
    )
    draws = f"{head}|{compression.codebook}|{decoys.digest}|{'None' if slice_index is None else int(slice_index)}|".encode()
    identities = sorted(set(rule))
    facts = {
        "version": VERSION,
        "release_rule": SUBSPACE_RULE,
        "profile": profile.name.replace(" ", "-"),
        "strategy": profile.strategy,
        "m": int(profile.m),
        "dtype": profile.dtype,
        "codebook": compression.codebook[:12],
        "decoys": decoys.digest[:12],
        "choices": _digest([draws, *identities]),
    }
    return Parameters(draws, _text("subspaces", facts))


def selected_parameters(parameters: Parameters, selection: Selection | ChosenFeatures, *, scored: bool = False) -> Parameters:
    """Parameters of a release of which `selection` says what leaves: the draws are the same, the text for the ledger is not.

    `scored` says that the features have scores, which then decide between those of equal or unknown scale.

    Raises ReleaseRefused for a selection that version 1 cannot express.
    """
    if isinstance(selection, ChosenFeatures):
        chosen = {"selection_rule": CHOSEN_RULE, "features": len(selection.rows), "rows": _digest([selection.rows.tobytes()])}
        return Parameters(parameters.draws, f"{parameters.text} {_joined(chosen)}")
    _require_fields(selection, _SELECTION)
    facts = {
        "selection_rule": SCORED_SELECTION_RULE if scored else SELECTION_RULE,
        "features": "all" if selection.features is None else int(selection.features),
        "min_distance_px": _number(selection.min_distance_px),
    }
    return Parameters(parameters.draws, f"{parameters.text} {_joined(facts)}")


def word_parameters(mechanism: SubsetMechanism, *, dictionary: Codebook, features_sent: int | None = None) -> Parameters:
    """Parameters of a release of words; `features_sent` (None: all) changes which features leave, but none of their draws.

    Raises ReleaseRefused for a mechanism that version 1 cannot express.
    """
    _require_fields(mechanism, _WORDS)
    law = f"{int(mechanism.dictionary_size)}|{_number(mechanism.epsilon)}|{int(mechanism.m)}"
    draws = f"words|{law}|{dictionary.digest}|".encode()
    facts = {
        "version": VERSION,
        "release_rule": WORD_RULE,
        "K": int(mechanism.dictionary_size),
        "epsilon": _number(mechanism.epsilon),
        "m": int(mechanism.m),
        "features": "all" if features_sent is None else int(features_sent),
        "dictionary": dictionary.digest[:12],
        "choices": _digest([draws]),
    }
    return Parameters(draws, _text("words", facts))


def line_draws(options: LineOptions, *, upright: bool) -> bytes:
    """Bytes that open the context of every draw of an image's lines; `upright` says whether gravity is known.

    The text of lines for the ledger is `veil.mechanisms.lines.line_key`. Raises ReleaseRefused for options that version 1
    cannot express.
    """
    _require_fields(options, _LINES)
    return f"line|LineOptions(aligned_share={_number(options.aligned_share)})|{_flag(upright)}|".encode()


def _require_fields(record: object, known: tuple[str, ...]) -> None:
    """Raise ReleaseRefused unless `record` has exactly the fields `known`.

    A field that the version does not know could change a release without changing a draw, and without the ledger's notice.
    """
    names = {item.name for item in fields(record)}  # type: ignore[arg-type]
    if names != set(known):
        raise _inexpressible(f"{type(record).__name__} with the fields {', '.join(sorted(names ^ set(known)))}")


def _inexpressible(what: str) -> ReleaseRefused:
    """Error for a choice that the version has no place for."""
    return ReleaseRefused(
        f"version {VERSION} of what releases depend on cannot express a {what}; nothing was released. "
        "Add a version to veil.mechanisms.parameters, and leave this one as it is"
    )


def _quoted(text: str) -> str:
    """Text in single quotes. Raises ReleaseRefused for text that would need escapes."""
    if not text.isprintable() or not text.isascii() or set(text) & set("'\"\\"):
        raise _inexpressible(f"name like {text!r}")
    return f"'{text}'"


def _number(value: float | int) -> str:
    """The shortest decimal that reads back as this double."""
    return float.__repr__(float(value))


def _flag(value: object) -> str:
    return "True" if value else "False"


def _digest(parts: Iterable[bytes]) -> str:
    """First 16 hex digits of the SHA-256 of parts with their lengths."""
    hasher = hashlib.sha256()
    for part in parts:
        hasher.update(len(part).to_bytes(8, "little") + part)
    return hasher.hexdigest()[:16]


def _text(kind: str, facts: dict[str, object]) -> str:
    """Text for the ledger: the kind of release, then name=value of each fact."""
    return f"{kind} {_joined(facts)}"


def _joined(facts: Mapping[str, object]) -> str:
    return " ".join(f"{name}={value}" for name, value in facts.items())
