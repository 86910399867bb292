"""`veil faces create | enroll | verify | identify | revoke | renew | calibrate | list | reseal`: the life of face templates."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from veil.cli.common import add_command, add_json, at_least, report, say, tell, write_json
from veil.cli.faces.calibrate import PAIRS_HELP, calibrate, print_sizes, print_what_is_needed
from veil.cli.faces.decisions import face_vector, identify, opened_store, verify
from veil.cli.faces.networks import add_model
from veil.cli.faces.reseal import reseal
from veil.errors import InputError
from veil.faces.naming import checked_name
from veil.faces.template import WAYS, Client, Setup, decoys_digest
from veil.files.face_home import FaceHome
from veil.files.face_store import FaceStore
from veil.files.faces import read_faces
from veil.mechanisms.profile import STRATEGIES

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
    "  veil faces calibrate door.store lfw.npz --pairs lfw/pairs.csv --decoys others.npz --far 0.01\n"
    "  veil faces calibrate hall.store lfw.npz --pairs lfw/pairs.csv --decoys others.npz --fpir 0.001\n",
    "list": "  veil faces list door.store --json -\n",
    "reseal": "  veil faces reseal door.store --decoys others.npz                 a store of veil 0.1\n"
    "  veil faces reseal door.store --decoys others.npz --restored      a backup that you put back yourself\n",
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
        "Compares a face with one template. Exit code 0: accepted. Exit code 3: no, whatever the reason: too far, nobody of\n"
        "that name, revoked, no face found, several, or one too small; --json says which. 1: the question could not be asked\n"
        "(no threshold, other decoys, a damaged store, an unreadable photograph).",
        verify,
    )
    _with_face(parser)
    parser = _action(
        actions,
        "identify",
        "who is this?",
        "Compares a face with all templates of a purpose, at the threshold that was calibrated for so many: the more there\n"
        "are, the nearer a face must be, or strangers get in. Exit code 3 where nobody is accepted, whatever the reason, as\n"
        "for verify. Refused where the calibration had too few people to speak for so many templates.",
        identify,
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
        "given share of false ones. Nothing is verified before. Stores that can identify get thresholds by size of the\n"
        "gallery as well, from all people among the faces, each a stranger to the others: at most --fpir of strangers are\n"
        "accepted, by the upper end of a 95 % interval.",
        calibrate,
    )
    parser.add_argument("faces", type=Path, help="descriptors of the pairs' faces")
    parser.add_argument("--pairs", type=Path, required=True, metavar="FILE", help=PAIRS_HELP)
    parser.add_argument("--decoys", type=Path, required=True, metavar="FILE", help="those of the store")
    parser.add_argument("--far", type=float, metavar="SHARE", help="verify: false accepts at most, for example 0.001")
    parser.add_argument(
        "--fpir",
        type=float,
        default=0.01,
        metavar="SHARE",
        help="identify: share of strangers who may be accepted, by a gallery of any size (default %(default)s)",
    )
    _action(actions, "list", "who is enrolled", "Revoked templates are listed, their numbers are gone.", _list)
    _register_reseal(actions)


def _register_reseal(actions: Any) -> None:
    parser = _action(
        actions,
        "reseal",
        "seal a store of an older format, or accept a backup",
        "Since format 2 every template is bound to its person, and the whole store sealed, by the client's secret. This seals\n"
        "a store of format 1 as it is now, so look at what is printed: its threshold is dropped, as anybody could have\n"
        "changed it. With --restored it accepts an older copy, or another store, in the place of one that this client saw;\n"
        "what was revoked since verifies again. A store of format 2 that somebody changed is never sealed.",
        reseal,
    )
    parser.add_argument("--decoys", type=Path, required=True, metavar="FILE", help="those of the store")
    parser.add_argument("--restored", action="store_true", help="accept an older copy that you put back yourself")
    parser.add_argument(
        "--without", nargs="+", default=[], metavar="PERSON", help="people whose templates are erased, as the store spells them"
    )


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
    home = FaceHome.for_new_store(on_new=tell)
    Client(setup=setup, decoys=decoys, secret=home.secret)  # refuses what would not work later
    FaceStore.create(arguments.store, setup, home)
    write_json(arguments.json, _record(setup))
    report(arguments, arguments.store, "an empty store")
    print_what_is_needed(arguments, setup)
    return 0


def _record(setup: Setup) -> dict[str, object]:
    return {
        "lifting": setup.strategy,
        "m": setup.m,
        "by": setup.by,
        "keyed": setup.keyed,
        "centered": setup.centered,
        "balance": setup.balance,
        "quota": dict(setup.quota),
    }


def _enroll(arguments: argparse.Namespace) -> int:
    person, purpose = checked_name(arguments.person, "person"), checked_name(arguments.purpose, "purpose")
    store, client = opened_store(arguments)
    if arguments.label is not None and not store.setup.balance:
        raise InputError(f"{arguments.store} balances no label; leave --label away, or create a store with --balance")
    vector = face_vector(arguments, store.setup)
    version = store.next_version(person, purpose)
    template = client.template(vector, purpose=purpose, person=person, version=version, label=arguments.label)
    store.enroll(person, purpose, version, template, renew=arguments.renew)
    write_json(arguments.json, {"person": person, "purpose": purpose, "version": version})
    done = "renewed" if arguments.renew else "enrolled"
    say(arguments, f"{done} {person} for {purpose}: template {version}. An obfuscation without proof.")
    return 0


def _revoke(arguments: argparse.Namespace) -> int:
    person, purpose = checked_name(arguments.person, "person"), checked_name(arguments.purpose, "purpose")
    FaceStore(arguments.store, FaceHome.for_store(arguments.store)).revoke(person, purpose)
    write_json(arguments.json, {"person": person, "purpose": purpose})
    say(arguments, f"revoked the template of {person} for {purpose}; its numbers are erased")
    return 0


def _list(arguments: argparse.Namespace) -> int:
    store = FaceStore(arguments.store, FaceHome.for_store(arguments.store))
    lines = store.enrolled()
    setup, threshold = store.setup, store.threshold
    write_json(
        arguments.json,
        {
            "setup": _record(setup),
            "threshold": None if threshold is None else threshold.as_json(),
            "identification": None if store.open_set is None else store.open_set.as_record(),
            "templates": [
                {"person": line.person, "purpose": line.purpose, "version": line.version, "valid": line.valid} for line in lines
            ],
        },
    )
    fitted = "not calibrated" if threshold is None else f"threshold {threshold.distance:.3f}"
    balanced = f", {setup.balance} balanced" if setup.balance else ""
    say(
        arguments,
        f"{setup.strategy} lifting{balanced}, m = {setup.m}, {setup.by}, {'' if setup.centered else 'not '}centered, "
        f"{'keyed' if setup.keyed else 'no key'}; {fitted}",
    )
    if store.open_set is not None:
        print_sizes(arguments, store.open_set, [sum(line.valid for line in lines)])
    for line in lines:
        say(arguments, f"{line.purpose:16} {line.person:24} {line.version:3d} {'valid' if line.valid else 'revoked'}")
    return 0
