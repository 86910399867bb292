"""Does the service keep its contract under 20,000 requests that schemathesis makes of it?

    python lab/benchmarks/contract.py OUT --requests 20000 --seed 1

A server in this process has a map of five bundled photographs with a place on Earth, tiles, and the demo page, and does no
further work on maps. schemathesis reads its /openapi.json and sends what it makes of it as an administrator: examples, coverage
of every parameter, method and body, fuzzing, and chains of requests, valid and invalid, with all of its checks on. It is told
what no schema can say (tests/worlds/contract_hooks.py): messages, ids of what is there, and that a rotation is one. Runs with
the next seeds follow until there were enough requests. Columns: seed, requests, failures and errors, seconds. The JSON line has
the sums and the version of schemathesis. Exit code 1 if anything failed; OUT then has what schemathesis printed.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from importlib.metadata import version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from veil.cli.common import quiet_colmap
from veil.device.device import Device
from veil.extraction.sift import SiftOptions, extract_sift
from veil.features import Features
from veil.files.photographs.examples import lund_door
from veil.files.photographs.pictures import read_picture
from worlds.contract_runs import prey, run, serving
from worlds.servers import messages_of, words_of


def main() -> None:
    """Run, and print a row for each seed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="a new folder for the server and what schemathesis tells")
    parser.add_argument("--requests", type=int, default=20_000, help="default %(default)s")
    parser.add_argument("--examples", type=int, default=100, help="of an operation in a run (default %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="the first (default %(default)s)")
    arguments = parser.parse_args()
    quiet_colmap()
    features = door()
    device = Device(arguments.out / "device")
    messages = list(messages_of(features, device, most=300).values())
    words = words_of(next(iter(features.values())), device, epsilon=8.0, most=100)
    total, failures, begun, seed = 0, 0, time.monotonic(), arguments.seed
    with serving(arguments.out / "store", messages[:-1]) as (server, made):
        victims = prey(server, [messages[-1], words], made)
        print("seed  requests  failures  seconds")
        while total < arguments.requests:
            start = time.monotonic()
            outcome = run(server, victims, arguments.out / f"seed-{seed}", examples=arguments.examples, seed=seed)
            print(f"{seed:4}  {outcome.requests:8}  {outcome.failures:8}  {time.monotonic() - start:7.0f}", flush=True)
            (arguments.out / f"seed-{seed}" / "output.txt").write_text(outcome.told)
            total, failures, seed = total + outcome.requests, failures + outcome.failures, seed + 1
    facts = {"requests": total, "failures": failures, "seconds": round(time.monotonic() - begun)}
    print(json.dumps({**facts, "schemathesis": version("schemathesis")}))
    raise SystemExit(1 if failures else 0)


def door() -> dict[str, Features]:
    """Features of six of the bundled photographs."""
    with lund_door() as example:
        options = SiftOptions(max_features=600)
        pictures = {name: read_picture(example.folder / name, camera=example.camera) for name in sorted(example.poses)[::2]}
        return {name: extract_sift(picture, options) for name, picture in pictures.items()}


if __name__ == "__main__":
    main()
