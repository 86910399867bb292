"""`veil client`: contribute, localize, delete and verify on a server; everything raw stays on this device."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from veil.cli.common import (
    EXIT_ERROR,
    EXIT_NO_POSE,
    EXIT_OK,
    Bar,
    Commands,
    add_command,
    progress,
    quiet_colmap,
    say,
    share_options,
    tell,
    tell_skipped,
    with_photographs,
    write_json,
)
from veil.cli.device.asked_protection import (
    AskedProtection,
    asked_descriptors,
    names_form,
    protection_of,
    require_consistent,
)
from veil.cli.device.client_connection import AskedServer, add_action, connected
from veil.cli.device.client_maps import add_map_actions
from veil.cli.device.extract import CAMERA, Extractor, with_camera
from veil.cli.input_options import CLIENT, FEATURES, kind_of_input, require_applicable
from veil.cli.records import Asked, Record, add_record, option, poses_file, positional
from veil.cli.remedies import advised
from veil.cli.server.pose_rows import located_line, report_poses
from veil.client import Client, JobStatus, RemotePose, ServerError, Unreachable
from veil.device.device import Device
from veil.device.gravity import measure_gravity
from veil.device.protection import HideInSubspaces, HideInWords, Purpose
from veil.device.tiles import TileAnswer
from veil.errors import InputError, VeilError, remedies_of
from veil.extraction import DETECTORS, extract
from veil.extraction.detection import DetectorOptions
from veil.extraction.sift import MAX_FEATURES, SiftOptions
from veil.features import Features
from veil.files.features import count_images, read_features
from veil.files.photographs.gravity import read_gravity
from veil.files.photographs.pictures import named_pictures, read_picture
from veil.files.tables import read_json
from veil.files.weights import load_network
from veil.geometry.camera import require_readable
from veil.geometry.rigid import Rigid
from veil.places.poses.answer import Localization, NoPose, camera_json
from veil.wire.receipts import receipt_of

EXAMPLES = """\
  veil client map list                                   what there is
  veil client contribute photos/ --map lobby             photographs, in subspaces
  veil client localize photo.jpg --map lobby             the pose of one, or why there is none
"""
EXAMPLES_OF = {
    "contribute": "  veil client contribute photos/ --map lobby --decoys pool.npz --wait\n",
    "localize": "  veil client localize photo.jpg --map lobby     by tiles if the map has them, else in words\n"
    "  veil client localize photos/ --map lobby --write-poses poses.txt\n"
    "  veil client localize photo.jpg --map lobby --epsilon 3 --gravity g.csv\n"
    "  veil client localize photo.jpg --map lobby --obfuscate     in subspaces, for a map of these\n",
    "send": "  veil client send\n",
    "status": "  veil client status\n  veil client status j0123456789abcdef     a job\n",
    "delete": "  veil client delete c0123456789abcdef --receipt gone.json\n",
    "verify": "  veil client verify gone.json\n",
}


@dataclass(frozen=True, kw_only=True)
class Given(Record):
    """Options that say which photographs are sent, and to which map."""

    input: tuple[Path, ...] = positional("photographs, folders of them, or a features file (.h5)")
    map: str = option("id of a map, or its name", required=True, metavar="MAP")
    camera: str | None = option(CAMERA, metavar="MODEL,P1,...")


@dataclass(frozen=True, kw_only=True)
class Contribute(Given, Extractor, AskedProtection, AskedServer):
    """Extract, protect and send photographs to a map. One that cannot be used is skipped and named."""

    wait: bool = option("wait until the messages are in the map or left out", default=False)


@dataclass(frozen=True, kw_only=True)
class LocalizeThere(Given, Extractor, AskedProtection, AskedServer):
    """Localize photographs; exit code 3 if one has no pose, or cannot be used. Where the server has tiles of the
    map's name nothing is sent, and poses are found here. Else words leave, with gravity as `veil gravity` measures it
    where --gravity does not tell it.
    """

    write_poses: Path | None = poses_file()


@dataclass(frozen=True, kw_only=True)
class Send(AskedServer):
    """Send what waited for the server."""


@dataclass(frozen=True, kw_only=True)
class Status(AskedServer):
    """List the contributions of this token, or say how far a job is."""

    job: str | None = positional("id of a job (default: list contributions)", optional=True)


@dataclass(frozen=True, kw_only=True)
class DeleteContributions(AskedServer):
    """Delete contributions, with verified receipts."""

    contributions: tuple[str, ...] = positional("ids, as `veil client status` shows them", metavar="CONTRIBUTION")
    receipt: Path | None = option("write the receipts here (JSON)", metavar="FILE")


@dataclass(frozen=True, kw_only=True)
class VerifyReceipts(AskedServer):
    """Check receipts against the server's chain."""

    receipts: tuple[Path, ...] = positional("files of receipts (JSON)")


def register(commands: Commands) -> None:
    """Add `veil client` with all its actions to the parser's commands."""
    summary = "contribute, localize, delete on a server"
    parser = add_command(commands, "client", summary, AskedServer.description, EXAMPLES)
    add_record(parser, AskedServer)
    share_options(parser)
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    add_map_actions(actions)
    _add(actions, "contribute", "extract, protect and send photographs to a map", Contribute, _contribute)
    _add(actions, "localize", "have photographs localized; exit code 3 if one has no pose", LocalizeThere, _localize)
    _add(actions, "send", "send what waited for the server", Send, _send)
    _add(actions, "status", "list the contributions of this token, or say how far a job is", Status, _status)
    _add(actions, "delete", "delete contributions, with verified receipts", DeleteContributions, _delete)
    _add(actions, "verify", "check receipts against the server's chain", VerifyReceipts, _verify)


def _add(actions: Commands, name: str, summary: str, record: type[Asked], run: Callable[[Asked], int]) -> None:
    add_action(actions, name, summary, EXAMPLES_OF[name], record, run)


def _contribute(arguments: Contribute) -> int:
    quiet_colmap()
    require_consistent(arguments, "map")
    rows: list[dict[str, object]] = []
    skipped: dict[str, str] = {}
    with connected(arguments) as client:
        where = client.id_of(arguments.map)
        job = None
        descriptors = _descriptors(arguments, "map", client.device)
        gravity = read_gravity(arguments.gravity) if arguments.gravity else {}
        for name, features, _ in _features(arguments, skipped):
            protection = protection_of(arguments, "map", descriptors, features, gravity, name)
            accepted = client.contribute(where, features, protection, name=name, allow_second=arguments.allow_second_release)
            state = "waits for the server" if accepted is None else accepted.state
            rows.append({"name": name, "contribution": accepted and accepted.contribution, "state": state})
            job = job if accepted is None or accepted.job is None else accepted.job
            say(arguments, f"{name}: {state if accepted is None else f'{accepted.contribution}, {state}'}")
        if arguments.wait and job is not None:
            status = _waited(client, job)
            states = {item.contribution: item for item in client.contributions()}
            own = _own_names(client)
            for row in rows:
                if (item := states.get(str(row["contribution"]))) is not None:
                    row |= {"state": item.state, "reason": item.reason}
                    reason = with_photographs(item.reason, own)
                    say(arguments, f"{row['name']}: {item.state}" + (f": {reason}" if reason else ""))
            if status.result.get("reason"):
                reason = advised(str(status.result["reason"]), remedies_of(status.result.get("remedy")))
                say(arguments, with_photographs(reason, own))
    _tell_left(skipped, rows)
    write_json(arguments.json, {"contributions": rows, "skipped": skipped}, private=True)
    return EXIT_OK


def _localize(arguments: LocalizeThere) -> int:
    quiet_colmap()
    require_consistent(arguments, "localize")
    rows: list[dict[str, object]] = []
    poses: dict[str, Rigid] = {}
    skipped: dict[str, str] = {}
    with connected(arguments) as client:
        where = client.id_of(arguments.map)
        for name, answer in _answers(arguments, client, where, skipped):
            if not isinstance(answer, NoPose):
                pose = answer.cam_from_world
                rows.append(
                    {
                        "name": name,
                        "status": "localized",
                        "cam_from_world": {"rotation": pose.rotation.tolist(), "translation": pose.translation.tolist()},
                        "camera_center": pose.center.tolist(),
                        **({} if answer.camera is None else {"camera": camera_json(answer.camera)}),
                        "covariance": None if answer.covariance is None else answer.covariance.tolist(),
                        "inliers": answer.inliers,
                        "map_version": answer.map_version if isinstance(answer, RemotePose) else None,
                    }
                )
                poses[name] = pose
                say(arguments, located_line(name, pose, answer.camera, answer.inliers, answer.correspondences))
            else:
                rows.append({"name": name, "status": "no pose", "reason": advised(answer.reason, answer.remedy)})
                say(arguments, f"{name}: no pose: {advised(answer.reason, answer.remedy)}")
    _tell_left(skipped, rows)
    write_json(arguments.json, {"queries": rows, "skipped": skipped}, private=True)
    report_poses(arguments, arguments.write_poses, poses)
    return EXIT_NO_POSE if skipped or any(row["status"] != "localized" for row in rows) else EXIT_OK


def _tell_left(skipped: dict[str, str], rows: Sequence[object]) -> None:
    """Print what was skipped. Raises InputError if nothing was sent."""
    tell_skipped(skipped)
    if skipped and not rows:
        raise InputError(f"none of the {len(skipped)} images can be used; the reasons stand above")


def _send(arguments: Send) -> int:
    with connected(arguments) as client:
        sent = client.send()
    write_json(
        arguments.json,
        {"contributions": [{"contribution": item.contribution, "state": item.state} for item in sent]},
        private=True,
    )
    say(arguments, f"sent {len(sent)} messages that waited")
    return EXIT_OK


def _status(arguments: Status) -> int:
    with connected(arguments) as client:
        if arguments.job:
            job = client.job(arguments.job)
            write_json(
                arguments.json, {"job": job.id, "state": job.state, "step": job.step, "result": dict(job.result)}, private=True
            )
            say(arguments, f"{job.id}: {job.state} {job.step} {job.done} of {job.total}")
            return EXIT_OK
        contributions = client.contributions()
        names = _own_names(client)
        waiting = sum(1 for _ in client.outbox.waiting())
    rows = [
        {"contribution": item.contribution, "name": names.get(item.contribution), "state": item.state, "reason": item.reason}
        for item in contributions
    ]
    write_json(arguments.json, {"contributions": rows, "waiting": waiting}, private=True)
    for row in rows:
        name = row["name"] or "(of another device)"
        reason = with_photographs(str(row["reason"]), names)
        say(arguments, f"{row['contribution']}  {name}: {row['state']} {reason}".rstrip())
    if waiting:
        say(arguments, f"{waiting} messages wait here; `veil client send` sends them")
    return EXIT_OK


def _own_names(client: Client) -> dict[str, str]:
    """The names of this device's photographs by their contributions, of which the server's reasons speak."""
    return {item.contribution: item.name for item in client.outbox.sent() if item.contribution and item.name}


def _delete(arguments: DeleteContributions) -> int:
    receipts = []
    with connected(arguments) as client:
        own = {name: f"  {photograph}" for name, photograph in _own_names(client).items()}
        for name in progress(arguments.contributions, "deleting"):
            receipt = client.delete(name)
            receipts.append(receipt.as_json())
            say(arguments, f"{name}{own.get(name, '')}: deleted; receipt {receipt.number} is in the server's chain")
    write_json(arguments.receipt, {"receipts": receipts}, private=True)
    write_json(arguments.json, {"receipts": receipts}, private=True)
    return EXIT_OK


def _verify(arguments: VerifyReceipts) -> int:
    failed = 0
    with connected(arguments) as client:
        for path in arguments.receipts:
            try:
                value = read_json(path)
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

    def show(status: JobStatus) -> None:
        if status.step and status.total:
            bars.setdefault(status.step, Bar(status.step))(status.done, status.total)

    try:
        return client.wait(job, on_status=show)
    finally:
        for bar in bars.values():
            bar.__exit__()


def _descriptors(arguments: Contribute | LocalizeThere, purpose: Purpose, device: Device) -> HideInSubspaces | HideInWords:
    """The protection of descriptors that the options ask for, whose meaning is told."""
    # Each image is compared with a dictionary's photographs when it is released.
    descriptors = asked_descriptors(arguments, purpose, arguments.descriptor, device, ())
    for note in descriptors.notes() if isinstance(descriptors, HideInWords) else []:
        tell(note)
    return descriptors


def _answers(
    arguments: LocalizeThere, client: Client, where: str, skipped: dict[str, str]
) -> Iterator[tuple[str, RemotePose | Localization | NoPose]]:
    """Names and answers of the images that the arguments name, in the form that these ask for, or the usual way."""
    is_asked = names_form(arguments) or arguments.features_sent is not None
    descriptors = _descriptors(arguments, "localize", client.device) if is_asked else None
    gravity = read_gravity(arguments.gravity) if arguments.gravity else {}
    again = arguments.allow_second_release
    for name, features, photograph in _features(arguments, skipped):
        if not (names_form(arguments) or name in gravity or photograph is None):
            down = measure_gravity([photograph], camera=arguments.camera)[photograph.name].direction
            gravity |= {} if down is None else {name: down}
        if descriptors is None:
            answer = client.localize(where, features, gravity=gravity.get(name), name=name, allow_second=again)
            yield name, answer.pose if isinstance(answer, TileAnswer) else answer
        else:
            protection = protection_of(arguments, "localize", descriptors, features, gravity, name)
            yield name, client.localize(where, features, protection, name=name, allow_second=again)


def _features(arguments: Contribute | LocalizeThere, skipped: dict[str, str]) -> Iterator[tuple[str, Features, Path | None]]:
    """Names and features of a features file, or of photographs, with the file of each photograph."""
    kind = kind_of_input(arguments.input)
    require_applicable(arguments, CLIENT, kind, arguments.input[0])
    if kind == FEATURES:
        faults: dict[str, VeilError] = {}
        images = progress(read_features(arguments.input[0], skipped=faults), "sending", count_images(arguments.input[0]))
        yield from ((name, features, None) for name, features in images)
        skipped.update({name: advised(error) for name, error in faults.items()})
        return
    options: SiftOptions | DetectorOptions = SiftOptions(max_features=MAX_FEATURES, first_octave=None)
    if arguments.descriptor in DETECTORS:
        options = DetectorOptions(max_features=MAX_FEATURES)
    network = load_network(arguments.descriptor)
    if arguments.camera:
        require_readable(arguments.camera)  # a slip of the user, and no fault of each photograph
    for name, path in progress(named_pictures(arguments.input), "sending"):
        try:
            features = extract(with_camera(read_picture(path), arguments.camera, path), arguments.descriptor, options, network)
        except VeilError as error:
            skipped[name] = advised(error)
            continue
        yield name, features, path
