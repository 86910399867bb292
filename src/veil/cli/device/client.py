"""`veil client`: contribute, localize, delete and verify on a server; everything raw stays on this device."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from veil.cli.common import (
    EXIT_ERROR,
    EXIT_NO_POSE,
    EXIT_OK,
    Bar,
    add_command,
    progress,
    quiet_colmap,
    say,
    share_options,
    tell,
    write_json,
)
from veil.cli.device.asked_protection import (
    USUAL,
    AskedProtection,
    asked_descriptors,
    asked_lines,
    fitting,
    require_consistent,
)
from veil.cli.device.client_connection import add_action, add_connection, connected
from veil.cli.device.client_maps import add_map_actions
from veil.cli.device.extract import Extractor, with_camera
from veil.cli.records import add_record
from veil.cli.remedies import advised
from veil.client import Client, JobStatus, RemotePose, ServerError, Unreachable
from veil.device.device import Device
from veil.device.protection import HideInWords, Protection
from veil.errors import VeilError, remedies_of
from veil.extraction import DETECTORS, extract
from veil.extraction.detection import DetectorOptions
from veil.extraction.sift import MAX_FEATURES, SiftOptions
from veil.features import Features
from veil.files.atomic import read_bytes
from veil.files.features import count_images, holds_features, read_features
from veil.files.gravity import read_gravity
from veil.files.pictures import named_pictures, read_picture
from veil.files.weights import load_network
from veil.names import MAP_ID
from veil.wire.receipts import receipt_of

EXAMPLES = """\
  veil client map list                                   what there is
  veil client contribute photos/ --map lobby             photographs, by the hardened default
  veil client localize photo.jpg --map lobby             the pose of one, or why there is none
"""
EXAMPLES_OF = {
    "contribute": "  veil client contribute photos/ --map lobby --decoys pool.npz --wait\n",
    "localize": "  veil client localize photo.jpg --map lobby\n"
    "  veil client localize photo.jpg --map lobby --words bundled --epsilon 5 --features 1000 --gravity g.csv\n"
    "  veil client localize photo.jpg --map lobby --descriptor aliked --codebook aliked.npz --decoys aliked-pool.npz\n",
    "send": "  veil client send\n",
    "status": "  veil client status\n  veil client status j0123456789abcdef     a job\n",
    "delete": "  veil client delete c0123456789abcdef --receipt gone.json\n",
    "verify": "  veil client verify gone.json\n",
}


def register(commands) -> None:  # type: ignore[no-untyped-def]
    """Add `veil client` with all its actions to the parser's commands."""
    parser = add_command(
        commands,
        "client",
        "contribute, localize, delete on a server",
        "Use a server. Photographs are extracted and privatized here, under the secret and the ledger in $VEIL_HOME; what\n"
        "is sent is a message, and the same bytes if it is sent again. Messages wait here while the server is away.\n"
        "VEIL_SERVER and VEIL_TOKEN name the server and the token; options of this group may stand before or after a command.",
        EXAMPLES,
    )
    add_connection(parser)
    share_options(parser)
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    add_map_actions(actions)
    for name, summary, run in (
        ("contribute", "extract, protect and send photographs to a map", _contribute),
        ("localize", "have photographs localized; exit code 3 if one has no pose", _localize),
    ):
        action = _add(actions, name, summary, run)
        action.add_argument("input", type=Path, nargs="+", help="photographs, folders of them, or a features file (.h5)")
        action.add_argument("--map", required=True, metavar="MAP", help="id of a map, or its name")
        action.add_argument(
            "--camera", metavar="MODEL,P1,...", help="intrinsics of all photographs (default: K.txt beside them)"
        )
        add_record(action, Extractor)
        add_record(action, AskedProtection)
        action.set_defaults(**USUAL, output=Path())
        if name == "contribute":
            action.add_argument("--wait", action="store_true", help="wait until the messages are in the map or left out")
    _add(actions, "send", "send what waited for the server", _send)
    action = _add(actions, "status", "list the contributions of this token, or say how far a job is", _status)
    action.add_argument("job", nargs="?", help="id of a job (default: list contributions)")
    action = _add(actions, "delete", "delete contributions, with verified receipts", _delete)
    action.add_argument("contributions", nargs="+", metavar="CONTRIBUTION", help="ids, as `veil client status` shows them")
    action.add_argument("--receipt", type=Path, metavar="FILE", help="write the receipts here (JSON)")
    action = _add(actions, "verify", "check receipts against the server's chain", _verify)
    action.add_argument("receipts", type=Path, nargs="+", help="files of receipts (JSON)")


def _add(actions, name: str, summary: str, run) -> argparse.ArgumentParser:  # type: ignore[no-untyped-def]
    return add_action(actions, name, summary, run, EXAMPLES_OF[name])


def _map_id(client: Client, text: str) -> str:
    """The id of a map; one that is given as such needs no answer of the server, which may be away."""
    return text if MAP_ID.fullmatch(text) else client.map(text).id


def _contribute(arguments: argparse.Namespace) -> int:
    quiet_colmap()
    require_consistent(arguments)
    rows: list[dict[str, object]] = []
    with connected(arguments) as client:
        where = _map_id(client, arguments.map)
        job = None
        for name, features, protection in _protected(arguments, client.device):
            accepted = client.contribute(where, features, protection, name=name, allow_second=arguments.allow_second_release)
            state = "waits for the server" if accepted is None else accepted.state
            rows.append({"name": name, "contribution": accepted and accepted.contribution, "state": state})
            job = job if accepted is None or accepted.job is None else accepted.job
            say(arguments, f"{name}: {state if accepted is None else f'{accepted.contribution}, {state}'}")
        if arguments.wait and job is not None:
            status = _waited(client, job)
            states = {item.contribution: item for item in client.contributions()}
            for row in rows:
                if (item := states.get(str(row["contribution"]))) is not None:
                    row |= {"state": item.state, "reason": item.reason}
                    say(arguments, f"{row['name']}: {item.state}" + (f": {item.reason}" if item.reason else ""))
            if status.result.get("reason"):
                say(arguments, advised(str(status.result["reason"]), remedies_of(status.result.get("remedy"))))
    write_json(arguments.json, {"contributions": rows}, private=True)
    return EXIT_OK


def _localize(arguments: argparse.Namespace) -> int:
    quiet_colmap()
    require_consistent(arguments)
    rows: list[dict[str, object]] = []
    with connected(arguments) as client:
        where = _map_id(client, arguments.map)
        for name, features, protection in _protected(arguments, client.device):
            found = client.localize(where, features, protection, name=name, allow_second=arguments.allow_second_release)
            if isinstance(found, RemotePose):
                pose = found.cam_from_world
                rows.append(
                    {
                        "name": name,
                        "status": "localized",
                        "cam_from_world": {"rotation": pose.rotation.tolist(), "translation": pose.translation.tolist()},
                        "camera_center": pose.center.tolist(),
                        "covariance": None if found.covariance is None else found.covariance.tolist(),
                        "inliers": found.inliers,
                        "map_version": found.map_version,
                    }
                )
                center = " ".join(f"{value:.4f}" for value in pose.center)
                say(arguments, f"{name}: camera center {center}, {found.inliers} inliers of {found.correspondences} matches")
            else:
                rows.append({"name": name, "status": "no pose", "reason": advised(found.reason, found.remedy)})
                say(arguments, f"{name}: no pose: {advised(found.reason, found.remedy)}")
    write_json(arguments.json, {"queries": rows}, private=True)
    return EXIT_OK if all(row["status"] == "localized" for row in rows) else EXIT_NO_POSE


def _send(arguments: argparse.Namespace) -> int:
    with connected(arguments) as client:
        sent = client.send()
    write_json(
        arguments.json,
        {"contributions": [{"contribution": item.contribution, "state": item.state} for item in sent]},
        private=True,
    )
    say(arguments, f"sent {len(sent)} messages that waited")
    return EXIT_OK


def _status(arguments: argparse.Namespace) -> int:
    with connected(arguments) as client:
        if arguments.job:
            job = client.job(arguments.job)
            write_json(
                arguments.json, {"job": job.id, "state": job.state, "step": job.step, "result": dict(job.result)}, private=True
            )
            say(arguments, f"{job.id}: {job.state} {job.step} {job.done} of {job.total}")
            return EXIT_OK
        found = client.contributions()
        names = {item.contribution: item.name for item in client.outbox.sent()}
        waiting = sum(1 for _ in client.outbox.waiting())
    rows = [
        {"contribution": item.contribution, "name": names.get(item.contribution), "state": item.state, "reason": item.reason}
        for item in found
    ]
    write_json(arguments.json, {"contributions": rows, "waiting": waiting}, private=True)
    for row in rows:
        name = row["name"] or "(of another device)"
        say(arguments, f"{row['contribution']}  {name}: {row['state']} {row['reason']}".rstrip())
    if waiting:
        say(arguments, f"{waiting} messages wait here; `veil client send` sends them")
    return EXIT_OK


def _delete(arguments: argparse.Namespace) -> int:
    receipts = []
    with connected(arguments) as client:
        for name in progress(arguments.contributions, "deleting"):
            receipt = client.delete(name)
            receipts.append(receipt.as_json())
            say(arguments, f"{name}: deleted; receipt {receipt.number} is in the server's chain")
    write_json(arguments.receipt, {"receipts": receipts}, private=True)
    write_json(arguments.json, {"receipts": receipts}, private=True)
    return EXIT_OK


def _verify(arguments: argparse.Namespace) -> int:
    failed = 0
    with connected(arguments) as client:
        for path in arguments.receipts:
            try:
                value = json.loads(read_bytes(path))
                for item in value["receipts"] if isinstance(value, dict) and "receipts" in value else [value]:
                    receipt = receipt_of(item)
                    client.verify(receipt)
                    say(arguments, f"{path}: receipt {receipt.number} of {receipt.content.get('contribution')} verifies")
            except (ServerError, Unreachable):
                raise
            except (VeilError, ValueError) as error:
                failed += 1
                tell(f"veil: {path}: {advised(error)}")
    write_json(arguments.json, {"verified": len(arguments.receipts) - failed, "failed": failed}, private=True)
    return EXIT_ERROR if failed else EXIT_OK


def _waited(client: Client, job: str) -> JobStatus:
    """The end of a job, with a bar for each of its steps."""
    bars: dict[str, Bar] = {}

    def told(status: JobStatus) -> None:
        if status.step and status.total:
            bars.setdefault(status.step, Bar(status.step))(status.done, status.total)

    try:
        return client.wait(job, told=told)
    finally:
        for bar in bars.values():
            bar.__exit__()


def _protected(arguments: argparse.Namespace, device: Device) -> Iterator[tuple[str, Features, Protection]]:
    """Names, features and protections of the images that the arguments name."""
    # Each image is compared with a dictionary's photographs when it is released.
    descriptors = asked_descriptors(arguments, device, ())
    for note in descriptors.notes() if isinstance(descriptors, HideInWords) else []:
        tell(note)
    gravity = read_gravity(arguments.gravity) if arguments.gravity else {}
    for name, features in _features(arguments):
        protection = Protection(descriptors=fitting(arguments, descriptors, features))
        if arguments.lines:
            hidden = asked_lines(arguments, gravity.get(name))
            protection = replace(protection, lines=hidden)
        elif name in gravity:
            protection = replace(protection, gravity=gravity[name])
        yield name, features, protection


def _features(arguments: argparse.Namespace) -> Iterator[tuple[str, Features]]:
    """Names and features of a features file, or of photographs."""
    if len(arguments.input) == 1 and arguments.input[0].is_file() and holds_features(arguments.input[0]):
        yield from progress(read_features(arguments.input[0]), "sending", count_images(arguments.input[0]))
        return
    options: SiftOptions | DetectorOptions = SiftOptions(max_features=MAX_FEATURES, first_octave=None)
    if arguments.descriptor in DETECTORS:
        options = DetectorOptions(max_features=MAX_FEATURES)
    network = load_network(arguments.descriptor, arguments.weights)
    for name, path in progress(named_pictures(arguments.input), "sending"):
        picture = with_camera(read_picture(path), arguments.camera, path)
        yield name, extract(picture, arguments.descriptor, options, network)
