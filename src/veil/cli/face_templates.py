"""`veil faces create | enroll | verify | identify | revoke | renew | calibrate | list`: the life of face templates."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from veil import kernels
from veil.cli.common import add_command, add_json, at_least, report, say, write_json
from veil.cli.face_calibration import PAIRS_HELP, calibrate, client_of
from veil.cli.face_networks import add_model, chosen_network
from veil.errors import InputError
from veil.extract.faces import describe_face
from veil.faces.template import WAYS, Client, Setup, decoys_digest, scores
from veil.files.client import home, load_secret
from veil.files.face_store import FaceStore, Threshold
from veil.files.faces import read_faces
from veil.files.pictures import read_rgb
from veil.privatize.profile import STRATEGIES

# Faces narrower than this are not enrolled or verified.
LEAST_PX = 60
# What `verify` and `identify` return where nobody is accepted.
EXIT_REJECTED = 3
FACE_HELP = "a photograph of one face (needs veil[faces]), or descriptors (.npz, HDF5; see --name)"
EXAMPLES = {
    "create": "  veil faces create door.store --decoys others.npz --lifting hybrid --m 4\n"
    "  veil faces create hall.store --decoys others.npz --by p2s        to identify as well\n"
    "  veil faces create club.store --decoys fairface.npz --balance gender\n"
    "  veil faces create club.store --decoys fairface.npz --balance gender --quota Female=2 Male=1\n",
    "enroll": "  veil faces enroll door.store alice.jpg --person alice --purpose door --decoys others.npz\n"
    "  veil faces enroll door.store lfw.npz --name Abel_Pacheco/Abel_Pacheco_0001.jpg --person abel --decoys others.npz\n",
    "verify": "  veil faces verify door.store now.jpg --person alice --purpose door --decoys others.npz\n"
    "  veil faces verify hall.store now.jpg --person alice --decoys arcface-others.npz --model arcface.onnx\n",
    "identify": "  veil faces identify door.store now.jpg --purpose door --decoys others.npz --top 3\n",
    "revoke": "  veil faces revoke door.store --person alice --purpose door\n",
    "renew": "  veil faces renew door.store another.jpg --person alice --purpose door --decoys others.npz\n",
    "calibrate": "  veil faces calibrate door.store lfw.npz --pairs lfw/pairs.csv --decoys others.npz\n"
    "  veil faces calibrate door.store lfw.npz --pairs lfw/pairs.csv --decoys others.npz --far 0.01\n",
    "list": "  veil faces list door.store --json -\n",
}


def register(actions: Any) -> None:
    """Add the actions."""
    parser = _action(
        actions,
        "create",
        "an empty store",
        "Say how its templates are made and compared; thresholds are fitted to that.",
        _create,
    )
    parser.add_argument("--decoys", type=Path, required=True, metavar="FILE", help="descriptors of other people")
    parser.add_argument("--lifting", choices=STRATEGIES[:3], default="hybrid", help="default %(default)s")
    parser.add_argument("--m", type=at_least(2), default=4, help="dimension (default %(default)s)")
    parser.add_argument(
        "--by",
        choices=WAYS,
        default="parallel",
        help="probes are lifted along their template's directions (default), turned only (p2s), or lifted afresh (s2s); "
        "the first cannot identify",
    )
    parser.add_argument(
        "--no-key", action="store_true", help="do not turn descriptors by a secret of the purpose: linkable, open to galleries"
    )
    parser.add_argument(
        "--balance",
        default="",
        metavar="LABEL",
        help="a label of the decoys, of which each class is drawn alike (hybrid+): it hides the label's value",
    )
    parser.add_argument(
        "--quota",
        type=_class_count,
        nargs="+",
        default=[],
        metavar="CLASS=COUNT",
        help="with --balance: decoys of each class in a round (default: one of each)",
    )
    parser.add_argument(
        "--center",
        action=argparse.BooleanOptionalAction,
        help="subtract the decoys' mean first, which parts two lifted templates better (default: with --by s2s only)",
    )
    parser = _action(actions, "enroll", "store a person's template", "One template of a person and purpose is valid.", _enroll)
    _with_face(parser)
    _with_label(parser)
    parser = _action(
        actions,
        "renew",
        "replace a person's template",
        "The old template is erased, and verifies nobody. Renew from another photograph: two templates of one photograph meet\n"
        "in its descriptor, for whoever kept the old one.",
        _enroll,
    )
    _with_face(parser)
    _with_label(parser)
    parser.set_defaults(renew=True)
    parser = _action(
        actions,
        "verify",
        "is this the person?",
        "Compares a face with one template. Exit code 0 if accepted, 3 if not.",
        _verify,
    )
    _with_face(parser)
    parser = _action(
        actions,
        "identify",
        "who is this?",
        "Compares a face with all templates of a purpose. Exit code 3 if none is near.",
        _identify,
    )
    _with_face(parser, person=False)
    parser.add_argument("--top", type=at_least(1), default=1, help="candidates to list (default %(default)s)")
    parser = _action(actions, "revoke", "erase a person's template", "It verifies nobody from now on.", _revoke)
    _with_person(parser)
    parser = _action(
        actions,
        "calibrate",
        "fit the threshold",
        "On pairs of faces, by this store's lifting, m and distance: with the most right decisions, or the most accepts at a\n"
        "given share of false ones. Nothing is verified before.",
        calibrate,
    )
    parser.add_argument("faces", type=Path, help="descriptors of the pairs' faces")
    parser.add_argument("--pairs", type=Path, required=True, metavar="FILE", help=PAIRS_HELP)
    parser.add_argument("--decoys", type=Path, required=True, metavar="FILE", help="those of the store")
    parser.add_argument("--far", type=float, metavar="SHARE", help="false accepts at most, for example 0.001")
    _action(actions, "list", "who is enrolled", "Revoked templates are listed, their numbers are gone.", _list)


def _action(
    actions: Any, name: str, summary: str, text: str, run: Callable[[argparse.Namespace], int]
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = add_command(actions, name, summary, text, EXAMPLES[name])
    parser.add_argument("store", type=Path, help="the store's file")
    add_json(parser)
    parser.set_defaults(run=run, renew=False)
    return parser


def _with_person(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--person", required=True, help="a pseudonym is enough")
    parser.add_argument("--purpose", default="default", help="what the template is for (default %(default)s)")


def _with_face(parser: argparse.ArgumentParser, *, person: bool = True) -> None:
    parser.add_argument("face", type=Path, help=FACE_HELP)
    parser.add_argument("--name", help="which face of a file of descriptors")
    parser.add_argument("--decoys", type=Path, required=True, metavar="FILE", help="those of the store")
    if person:
        _with_person(parser)
    else:
        parser.add_argument("--purpose", default="default", help="what the templates are for (default %(default)s)")
    add_model(parser)


def _class_count(text: str) -> tuple[str, int]:
    name, found, count = text.rpartition("=")
    if not (found and name and count.isdecimal()):
        raise argparse.ArgumentTypeError(f"a quota is CLASS=COUNT, got {text!r}")
    return name, int(count)


def _with_label(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--label", metavar="CLASS", help="the person's class where decoys are balanced (default: as the nearest decoys have it)"
    )


def _create(arguments: argparse.Namespace) -> int:
    decoys = read_faces(arguments.decoys)
    setup = Setup(
        strategy=arguments.lifting,
        m=arguments.m,
        by=arguments.by,
        space=decoys.space,
        decoys=decoys_digest(decoys, arguments.balance),
        keyed=not arguments.no_key,
        centered=arguments.by == "s2s" if arguments.center is None else arguments.center,
        balance=arguments.balance,
        quota=tuple(arguments.quota),
    )
    Client(setup=setup, decoys=decoys, secret=load_secret(home()))  # refuses what would not work later
    FaceStore.create(arguments.store, setup)
    write_json(arguments.json, _record(setup))
    report(arguments, arguments.store, "an empty store")
    return 0


def _record(setup: Setup) -> dict[str, object]:
    facts = {name: getattr(setup, name) for name in ("m", "by", "keyed", "centered", "balance")}
    return {"lifting": setup.strategy, **facts, "quota": dict(setup.quota)}


def _enroll(arguments: argparse.Namespace) -> int:
    store, client, vector = _prepared(arguments)
    version = store.next_version(arguments.person, arguments.purpose)
    if arguments.label is not None and not store.setup.balance:
        raise InputError(f"{arguments.store} balances no label; leave --label away, or create a store with --balance")
    template = client.template(
        vector, purpose=arguments.purpose, person=arguments.person, version=version, label=arguments.label
    )
    store.enroll(arguments.person, arguments.purpose, version, template, renew=arguments.renew)
    write_json(arguments.json, {"person": arguments.person, "purpose": arguments.purpose, "version": version})
    done = "renewed" if arguments.renew else "enrolled"
    say(arguments, f"{done} {arguments.person} for {arguments.purpose}: template {version}. An obfuscation without proof.")
    return 0


def _verify(arguments: argparse.Namespace) -> int:
    store, client, vector = _prepared(arguments)
    threshold = _threshold(store)
    _, templates = store.templates(arguments.purpose, arguments.person)
    if templates is None:
        raise InputError(f"{arguments.person!r} has no valid template for {arguments.purpose!r}; enroll first")
    score = float(scores(client.probe(vector, purpose=arguments.purpose, template=templates), templates)[0])
    accepted = score <= threshold.distance
    write_json(arguments.json, {"accepted": accepted, "score": score, "threshold": threshold.distance})
    say(arguments, f"{'accepted' if accepted else 'rejected'}: distance {score:.3f}, threshold {threshold.distance:.3f}")
    return 0 if accepted else EXIT_REJECTED


def _identify(arguments: argparse.Namespace) -> int:
    store, client, vector = _prepared(arguments)
    if store.setup.by == "parallel":
        raise InputError(f"{arguments.store} compares along one template's directions; to identify, create a store --by p2s")
    threshold = _threshold(store)
    people, templates = store.templates(arguments.purpose)
    if templates is None:
        raise InputError(f"nobody has a valid template for {arguments.purpose!r}; enroll first")
    probe = client.probe(vector, purpose=arguments.purpose)
    found = kernels.nearest(probe, (templates.origin, templates.basis), min(arguments.top, len(people)))
    best = [
        {"person": people[row], "score": float(score), "accepted": bool(score <= threshold.distance)}
        for row, score in zip(found.index[0].tolist(), found.distance[0].tolist(), strict=True)
    ]
    write_json(arguments.json, {"candidates": best, "templates": len(people), "threshold": threshold.distance})
    for item in best:
        say(arguments, f"{item['score']:.3f} {'accepted' if item['accepted'] else 'rejected'} {item['person']}")
    return 0 if best[0]["accepted"] else EXIT_REJECTED


def _revoke(arguments: argparse.Namespace) -> int:
    FaceStore(arguments.store).revoke(arguments.person, arguments.purpose)
    write_json(arguments.json, {"person": arguments.person, "purpose": arguments.purpose})
    say(arguments, f"revoked the template of {arguments.person} for {arguments.purpose}; its numbers are erased")
    return 0


def _list(arguments: argparse.Namespace) -> int:
    store = FaceStore(arguments.store)
    lines = store.enrolled()
    setup, threshold = store.setup, store.threshold
    write_json(
        arguments.json,
        {
            "setup": _record(setup),
            "threshold": None if threshold is None else threshold.__dict__,
            "templates": [line.__dict__ for line in lines],
        },
    )
    fitted = "not calibrated" if threshold is None else f"threshold {threshold.distance:.3f}"
    balanced = f", {setup.balance} balanced" if setup.balance else ""
    say(
        arguments,
        f"{setup.strategy} lifting{balanced}, m = {setup.m}, {setup.by}, {'' if setup.centered else 'not '}centered, "
        f"{'keyed' if setup.keyed else 'no key'}; {fitted}",
    )
    for line in lines:
        say(arguments, f"{line.purpose:16} {line.person:24} {line.version:3d} {'valid' if line.valid else 'revoked'}")
    return 0


def _prepared(arguments: argparse.Namespace) -> tuple[FaceStore, Client, np.ndarray]:
    store = FaceStore(arguments.store)
    return store, client_of(store, arguments.decoys), _vector(arguments, store.setup)


def _threshold(store: FaceStore) -> Threshold:
    if store.threshold is None:
        raise InputError(f"{store.path} has no threshold; fit one with: veil faces calibrate")
    return store.threshold


def _vector(arguments: argparse.Namespace, setup: Setup) -> np.ndarray:
    """The one face of a photograph, or of a file of descriptors."""
    path, name = arguments.face, arguments.name
    if path.suffix.lower() not in (".npz", ".h5", ".hdf5"):
        network = chosen_network(arguments, needed=setup.space)
        return describe_face(read_rgb(path), network, only=True, least_px=LEAST_PX)
    if arguments.model is not None:
        raise InputError(f"--model describes photographs; {path} holds descriptors already")
    faces = read_faces(path)
    if faces.space != setup.space:
        raise InputError(f"{path} holds [{faces.space}], the store [{setup.space}]; describe both with one network")
    if name is None and len(faces) > 1:
        raise InputError(f"{path} holds {len(faces)} faces; say which with --name")
    if name is not None and name not in faces.names:
        raise InputError(f"{path} has no face {name!r}; the first is {faces.names[0]!r}")
    row: np.ndarray = faces.vectors[faces.names.index(name) if name is not None else 0]
    return row
