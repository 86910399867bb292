"""Arguments of `veil faces create | enroll | renew | verify | identify | revoke | calibrate | list | reseal`."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from veil.cli.common import add_command, add_json, at_least
from veil.mechanisms.profile import STRATEGIES
from veil_faces.cli.calibrate import PAIRS_HELP, calibrate
from veil_faces.cli.decisions import identify, verify
from veil_faces.cli.enrollment import create, enroll, list_templates, revoke
from veil_faces.cli.networks import add_model
from veil_faces.cli.reseal import reseal
from veil_faces.template import COMPARISONS

FACE_HELP = "a photograph of one face (it needs veil-faces[networks]), or descriptors (.npz, HDF5; see --face-name)"
EXAMPLES = {
    "create": "  veil faces create door.store --decoys others.npz --lifting hybrid --m 4\n"
    "  veil faces create hall.store --decoys others.npz --by p2s        to identify as well\n"
    "  veil faces create club.store --decoys fairface.npz --balance gender\n"
    "  veil faces create club.store --decoys fairface.npz --balance gender --quota Female=2 Male=1\n",
    "enroll": "  veil faces enroll door.store alice.jpg --person alice --purpose door --decoys others.npz\n"
    "  veil faces enroll door.store lfw.npz --face-name Abel_Pacheco/Abel_Pacheco_0001.jpg --person abel --decoys others.npz\n",
    "verify": "  veil faces verify door.store now.jpg --person alice --purpose door --decoys others.npz\n"
    "  veil faces verify hall.store now.jpg --person alice --decoys arcface-others.npz --model arcface.onnx\n",
    "identify": "  veil faces identify door.store now.jpg --purpose door --decoys others.npz --top 3\n",
    "revoke": "  veil faces revoke door.store --person alice --purpose door\n",
    "renew": "  veil faces renew door.store another.jpg --person alice --purpose door --decoys others.npz\n",
    "calibrate": "  veil faces calibrate door.store lfw.npz --face-pairs lfw/pairs.csv --decoys others.npz\n"
    "  veil faces calibrate door.store lfw.npz --face-pairs lfw/pairs.csv --decoys others.npz --far 0.01\n"
    "  veil faces calibrate hall.store lfw.npz --face-pairs lfw/pairs.csv --decoys others.npz --fpir 0.001\n",
    "list": "  veil faces list door.store --json -\n",
    "reseal": "  veil faces reseal door.store --decoys others.npz                 a store of veil 0.1\n"
    "  veil faces reseal door.store --decoys others.npz --restored      a backup that you put back yourself\n",
}


def register(actions: Any) -> None:
    """Add all actions on templates to `veil faces`, in the order of its --help."""
    _register_create(actions)
    _register_enroll(actions)
    _register_renew(actions)
    _register_verify(actions)
    _register_identify(actions)
    _register_revoke(actions)
    _register_calibrate(actions)
    _action(
        actions,
        "list",
        "who is enrolled",
        "List who is enrolled, and for what. Revoked templates are listed, their numbers are gone.",
        list_templates,
    )
    _register_reseal(actions)


def _register_create(actions: Any) -> None:
    parser = _action(
        actions,
        "create",
        "an empty store",
        "Make an empty store, and say how its templates are made and compared; thresholds are fitted to that.",
        create,
    )
    _with_decoys(parser)
    parser.add_argument("--lifting", choices=STRATEGIES[:3], default="hybrid", help="way of lifting (default %(default)s)")
    parser.add_argument("--m", type=at_least(2), default=4, help="dimension of the templates (default %(default)s)")
    parser.add_argument(
        "--by",
        choices=COMPARISONS,
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


def _register_enroll(actions: Any) -> None:
    parser = _action(
        actions,
        "enroll",
        "store a person's template",
        "Make the template of a person for a purpose. One is valid at a time: `veil faces renew` replaces it.",
        enroll,
    )
    _with_face(parser)
    _with_label(parser)


def _register_renew(actions: Any) -> None:
    parser = _action(
        actions,
        "renew",
        "replace a person's template",
        "Replace the template of a person: the old one is erased, and verifies nobody. Renew from another photograph: two\n"
        "templates of one photograph meet in its descriptor, for whoever kept the old one.",
        enroll,
    )
    _with_face(parser)
    _with_label(parser)
    parser.set_defaults(renew=True)


def _register_verify(actions: Any) -> None:
    parser = _action(
        actions,
        "verify",
        "is this the person?",
        "Compare a face with one template. Exit code 0: accepted. Exit code 3: no, whatever the reason: too far, nobody of\n"
        "that name, revoked, no face found, several, or one too small; --json says which. 1: the question could not be asked\n"
        "(no threshold, other decoys, a damaged store, an unreadable photograph).",
        verify,
    )
    _with_face(parser)


def _register_identify(actions: Any) -> None:
    parser = _action(
        actions,
        "identify",
        "who is this?",
        "Compare a face with all templates of a purpose, at the threshold that was calibrated for so many: the more there\n"
        "are, the nearer a face must be, or strangers get in. Exit code 3 where nobody is accepted, whatever the reason, as\n"
        "for verify. Refused where the calibration had too few people to speak for so many templates.",
        identify,
    )
    _with_face(parser, person=False)
    parser.add_argument("--top", type=at_least(1), default=1, help="candidates to list (default %(default)s)")


def _register_revoke(actions: Any) -> None:
    parser = _action(
        actions,
        "revoke",
        "erase a person's template",
        "Erase the template of a person for a purpose: it verifies nobody from now on.",
        revoke,
    )
    _with_person(parser)


def _register_calibrate(actions: Any) -> None:
    parser = _action(
        actions,
        "calibrate",
        "fit the threshold",
        "Fit the threshold on pairs of faces, by this store's lifting, m and distance: that of the most right decisions, or\n"
        "of the most accepts at a given share of false ones. Nothing is verified before. Stores that can identify get\n"
        "thresholds by size of the gallery as well, from all people among the faces, each a stranger to the others: at most\n"
        "--fpir of strangers are accepted, by the upper end of a 95 % interval.",
        calibrate,
    )
    parser.add_argument("faces", type=Path, help="descriptors of the pairs' faces")
    parser.add_argument("--face-pairs", type=Path, required=True, metavar="FILE", help=PAIRS_HELP)
    _with_decoys(parser)
    parser.add_argument("--far", type=float, metavar="SHARE", help="verify: false accepts at most, for example 0.001")
    parser.add_argument(
        "--fpir",
        type=float,
        default=0.01,
        metavar="SHARE",
        help="identify: share of strangers who may be accepted, by a gallery of any size (default %(default)s)",
    )


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
    _with_decoys(parser)
    parser.add_argument("--restored", action="store_true", help="accept an older copy that you put back yourself")
    parser.add_argument(
        "--without", nargs="+", default=[], metavar="PERSON", help="people whose templates are erased, as the store spells them"
    )


def _action(
    actions: Any, name: str, summary: str, text: str, run: Callable[[argparse.Namespace], int]
) -> argparse.ArgumentParser:
    """Add an action on a store, which `run` carries out, and return its parser."""
    parser: argparse.ArgumentParser = add_command(actions, name, summary, text, EXAMPLES[name])
    parser.add_argument("store", type=Path, help="the store's file")
    add_json(parser)
    parser.set_defaults(run=run, renew=False)
    return parser


def _with_decoys(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--decoys",
        type=Path,
        required=True,
        metavar="FILE",
        help="descriptors of other people, the same for every command on the store",
    )


def _with_person(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--person", required=True, help="whose template it is; a pseudonym is enough")
    parser.add_argument("--purpose", default="default", help="what the template is for (default '%(default)s')")


def _with_face(parser: argparse.ArgumentParser, *, person: bool = True) -> None:
    parser.add_argument("face", type=Path, help=FACE_HELP)
    parser.add_argument("--face-name", metavar="NAME", help="which face of a file of descriptors")
    _with_decoys(parser)
    if person:
        _with_person(parser)
    else:
        parser.add_argument("--purpose", default="default", help="what the template is for (default '%(default)s')")
    add_model(parser)


def _class_count(text: str) -> tuple[str, int]:
    """Parse CLASS=COUNT (an argparse type)."""
    name, found, count = text.rpartition("=")
    if not (found and name and count.isdecimal()):
        raise argparse.ArgumentTypeError(f"a quota is CLASS=COUNT, got {text!r}")
    return name, int(count)


def _with_label(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--label", metavar="CLASS", help="the person's class where decoys are balanced (default: as the nearest decoys have it)"
    )
