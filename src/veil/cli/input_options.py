"""Options of a command by kinds of input: which apply to which, and the refusal of those that would do nothing.

A table has a row for every option of its command that is not about the output. An option counts as given where its value is
not the default.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

from veil.cli.records import Record
from veil.errors import InputError

PHOTOGRAPHS, DATABASE, FEATURES = "photographs", "COLMAP databases (.db)", "files of features (.h5)"
POSITIONS, LINES = "images with positions", "messages that hide positions in lines"
BY_DISTANCE, WORDS, ALONE = "queries in subspaces or raw", "queries in words", "queries of positions alone"
TILES_PHOTOGRAPHS, TILES_FEATURES = "photographs in tiles", "files of features in tiles"

Table = Mapping[str, tuple[str, ...]]

_TO_EXTRACT = (PHOTOGRAPHS, DATABASE, FEATURES)
EXTRACT: Table = {
    "descriptor": (PHOTOGRAPHS,),
    "weights": (PHOTOGRAPHS,),
    "min_score": (PHOTOGRAPHS,),
    "normalization": _TO_EXTRACT,
    "max_features": (PHOTOGRAPHS,),
    "first_octave": (PHOTOGRAPHS,),
    "camera": (PHOTOGRAPHS,),
    "masks": (PHOTOGRAPHS,),
    "imported": (FEATURES,),
    "strict": _TO_EXTRACT,
}
# What `veil client contribute` and `veil client localize` extract; other options are of the protection and the server.
CLIENT: Table = {"camera": (PHOTOGRAPHS,), "descriptor": (PHOTOGRAPHS,)}
GRAVITY: Table = {
    "source": (PHOTOGRAPHS, DATABASE),
    "readings": (PHOTOGRAPHS,),
    "axes": (PHOTOGRAPHS,),
    "camera": (PHOTOGRAPHS,),
    "figure": (PHOTOGRAPHS,),
}
_TO_MAP = (POSITIONS, LINES)
MAP: Table = {
    "matcher": (POSITIONS,),
    "matcher_weights": (POSITIONS,),
    "gravity": (POSITIONS,),
    "max_seconds": (POSITIONS,),
    "mapper": (POSITIONS,),
    "locate": (POSITIONS,),
    "known_poses": (POSITIONS,),
    **dict.fromkeys(("ratio", "workers", "strict", "seed", "add_to", "pairs", "pair_count", "matches"), _TO_MAP),
    **dict.fromkeys(("cluster_size", "memory", "engine", "names"), _TO_MAP),
}
# Of the features that `veil map import` is given, or finds beside the model.
MAP_IMPORT: Table = {
    "imported": (FEATURES,),
    "normalization": (DATABASE, FEATURES),
    **dict.fromkeys(("workers", "seed", "gravity"), _TO_EXTRACT),
}
_IN_TILES = (TILES_PHOTOGRAPHS, TILES_FEATURES)
LOCALIZE: Table = {
    "camera": (TILES_PHOTOGRAPHS,),
    **dict.fromkeys(("fix", "within", "exit", "cache", "offline"), _IN_TILES),
    "matcher": (BY_DISTANCE,),
    "matcher_weights": (BY_DISTANCE,),
    "ratio": (BY_DISTANCE, *_IN_TILES),
    "codebook": (BY_DISTANCE,),
    "search": (BY_DISTANCE,),
    "dictionary": (WORDS,),
    "max_seconds": (WORDS, ALONE),
    "near": (WORDS, ALONE, *_IN_TILES),
    "near_images": (WORDS, ALONE),
    "nearest": (WORDS, ALONE),
    "names": (BY_DISTANCE, WORDS, ALONE),
    "sequence": (BY_DISTANCE, WORDS, ALONE),
    "motion_scale": (BY_DISTANCE, WORDS, ALONE),
    "write_poses": (BY_DISTANCE, WORDS, ALONE, *_IN_TILES),
    "workers": (BY_DISTANCE, WORDS, ALONE, *_IN_TILES),
    "strict": (BY_DISTANCE, WORDS, ALONE, *_IN_TILES),
}


def require_applicable(arguments: Record, table: Table, kind: str, what: Path | str) -> None:
    """Raise InputError for an option that is given and does not apply to inputs of this kind; `what` names the input."""
    for field in dataclasses.fields(arguments):  # type: ignore[arg-type]
        kinds = table.get(field.name)
        if kinds is not None and kind not in kinds and getattr(arguments, field.name) != field.default:
            flag = (field.metadata["facts"].names or ("--",))[-1]
            flag = "--" + field.name.replace("_", "-") if flag == "--" else flag
            raise InputError(f"{flag} applies to {' and '.join(kinds)}, and not to {kind}; leave it out for {what}")


def kind_of_input(paths: tuple[Path, ...]) -> str:
    """The kind of what is extracted or sent. Raises InputError for a database or a file of features among other inputs."""
    kinds = [
        DATABASE if path.suffix.lower() == ".db" else FEATURES if path.suffix.lower() in (".h5", ".hdf5") else PHOTOGRAPHS
        for path in paths
    ]
    others = [path for path, kind in zip(paths, kinds, strict=True) if kind != PHOTOGRAPHS and path.is_file()]
    if others and len(paths) > 1:
        raise InputError(f"{others[0]} is read alone; give it without other inputs")
    return PHOTOGRAPHS if len(paths) > 1 or paths[0].is_dir() else kinds[0]
