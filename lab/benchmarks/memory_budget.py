"""Memory and time of matching a list of pairs, with all uploads in memory and with uploads that are read as needed.

    python lab/benchmarks/memory_budget.py UPLOADS --images 150 300 600 --memory 0 0.05 --pair-count 2

Each row is a process of its own: the images that come first in the order of names, each paired with its next few, matched block
by block into a store. `peak` is what the process held at most, `above start` is that less what it held after imports. The
blocks of all rows of one number of images are compared byte by byte.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import resource
import subprocess
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path

from veil.device.doors import load_uploads
from veil.places.images_on_demand import GIB, form_bytes, uploads_on_demand
from veil.places.pairs.blocks import KIND, matched_in_blocks
from veil.places.pairs.candidates import sequential_pairs
from veil.places.pairs.images import FormsOf
from veil.places.pairs.store import MatchStore

MIB = 2**20


def main() -> None:
    """Run each row in a process of its own, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("uploads", type=Path, help="folder of .veil messages")
    parser.add_argument("--images", type=int, nargs="+", default=[150, 300, 600])
    parser.add_argument("--memory", type=float, nargs="*", default=[0.0, 0.05], help="budgets in GiB")
    parser.add_argument("--pair-count", type=int, default=2, help="next images that each is paired with")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one is not None:
        print(json.dumps(measured(arguments.uploads, arguments.one, arguments.pair_count)))
        return
    print("| images | pairs | budget (MiB) | seconds | readings | cache (MiB) | above start (MiB) | peak (MiB) | same blocks |")
    print("|---|---|---|---|---|---|---|---|---|")
    files = sorted(arguments.uploads.glob("*.veil"))
    for count in arguments.images:
        if len(files) < count:
            raise SystemExit(f"{arguments.uploads} holds {len(files)} messages, not {count}")
        with tempfile.TemporaryDirectory() as folder:
            for file in islice(files, count):
                (Path(folder) / file.name).symlink_to(file.resolve())
            first = None
            for budget in ["all", *map(str, arguments.memory)]:
                command = [sys.executable, __file__, folder, "--one", budget, "--pair-count", str(arguments.pair_count)]
                row = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
                first = first or row["blocks"]
                named = budget if budget == "all" else f"{float(budget) * GIB / MIB:.0f}"
                sizes = " | ".join(f"{row[key] / MIB:.0f}" for key in ("cache", "above", "peak"))
                same = "yes" if row["blocks"] == first else "NO"
                print(
                    f"| {count} | {row['pairs']} | {named} | {row['seconds']:.0f} | {row['reads']} | {sizes} | {same} |",
                    flush=True,
                )


def measured(folder: Path, budget: str, neighbors: int) -> dict:
    """Load and match as `veil map` does, in this process."""
    before, begun = _peak(), time.monotonic()
    if budget == "all":
        images = load_uploads(folder).images
        cache = None
    else:
        images = uploads_on_demand(folder, budget_bytes=round(float(budget) * GIB)).images
        cache = next(iter(images.values()))._cache  # type: ignore[attr-defined]
    pairs = sequential_pairs(sorted(images), overlap=neighbors)
    with tempfile.TemporaryDirectory() as kept:
        store = MatchStore(Path(kept) / "matches", KIND)
        matched_in_blocks(FormsOf(images), pairs, store, workers=2)
        blocks = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in store.folder.iterdir()}
    held = sum(form_bytes(image.form) for image in images.values()) if cache is None else cache.most_bytes
    return {
        "pairs": len(pairs),
        "seconds": time.monotonic() - begun,
        "reads": len(images) if cache is None else len(images) + cache.reads,
        "cache": held,
        "above": _peak() - before,
        "peak": _peak(),
        "blocks": hashlib.sha256(json.dumps(sorted(blocks.items())).encode()).hexdigest(),
    }


def _peak() -> int:
    """The most memory that this process held, in bytes (Linux)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    main()
