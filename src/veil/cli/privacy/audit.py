"""`veil audit`: every known attack is run on one's own upload; the report has pictures, and numbers with their intervals."""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from veil.attacks.registry import ATTACKS, chosen
from veil.attacks.time_budget import AUDIT_SECONDS
from veil.audit.on_pictures import DrawnPicture
from veil.audit.policy import HELP, Rule, parse_policy
from veil.audit.run import Examined
from veil.cli.common import (
    EXIT_OK,
    EXIT_POLICY,
    StepBar,
    add_command,
    add_json,
    add_strict,
    at_least,
    progress,
    quiet_colmap,
    report,
    tell_skipped,
    write_json,
)
from veil.cli.engine_arguments import add_engine_arguments
from veil.cli.privacy.audit_table import say_outcome
from veil.cli.privacy.audit_tiles import audited_tiles
from veil.cli.privacy.inspect import upload_facts
from veil.cli.privacy.originals import Originals, read_attackers, read_originals
from veil.cli.remedies import phrase
from veil.device.attacker import Attacker, own_descriptors
from veil.device.auditing import AuditOptions, audited
from veil.errors import InputError
from veil.features import Features
from veil.files.atomic import read_bytes, write_text
from veil.files.client import home
from veil.files.codebooks import read_codebook
from veil.files.tiles import holds_tiles
from veil.places.held_map import Map
from veil.places.uploads import decoded, further_messages
from veil.report.audit import Shown, page, position_pictures, reconstructed_pictures
from veil.wire.message import Message

EXAMPLES = """\
  veil audit upload/                                              what the release alone gives away
  veil audit upload/ --images features.h5 -o audit.html           and how near each attack comes to the truth
  veil audit upload/ --images features.h5 photos/                 with the photographs beside what attacks see
  veil audit upload/3f2a....veil --against other-upload/          what two releases of one place give away together
  veil audit upload/ --images features.h5 --only "matched views"  how much two photographs of a place give away
  veil audit query/ --map map/ --images features.h5               what whoever localizes the release learns of it
  veil audit upload/ --images features.h5 --fail-on "structural>5%" --fail-on "epsilon.image>100"
  veil audit tiles/ --images photos/                              what publishing a map's tiles shows of the place

rules of --fail-on and --policy (one a line, # begins a comment):
  structural>5%          any attack of a family: structural, distribution, intersection, repeat, views, matches, positions ...
  lattice.exact>0        one attack; recovered (the default), certified, exact, identified, within_0.02, _0.1, _0.2, _0.4, _0.6
  positions.within_5px>20%
  epsilon.image>100      of words: feature, object or image
A share keeps a rule if its whole 95 % interval does: 0 of 60 features may be up to 6 %. A rule > 0 asks for not one among
the features attacked. A rule that no attack could judge counts as broken. Exit code 4 says that a rule is broken.
"""


def register(commands) -> None:  # type: ignore[no-untyped-def]
    """Add `veil audit` to the parser's commands."""
    parser = add_command(
        commands,
        "audit",
        "what the server can see: every known attack on your own upload",
        "Attack a release with everything that is known, and tell in numbers and pictures what was recovered. With the\n"
        "originals, every attack is measured; without them, only what an attack certifies by itself. A number is what known\n"
        "attacks reach, a lower bound of what leaks: the audit can find a release broken, never safe.\n"
        "Of a folder of tiles (`veil tiles cut`), which are public, it draws what they show of the place, beside photographs.",
        EXAMPLES,
    )
    parser.add_argument("release", type=Path, help="a message (.veil) or a folder of them, or a folder of tiles")
    parser.add_argument(
        "--images", type=Path, nargs="+", default=[], metavar="PATH", help="the originals: features.h5 and photographs"
    )
    _add_attacker(parser)
    _add_effort(parser)
    parser.add_argument(
        "--fail-on",
        action="append",
        default=[],
        metavar="RULE",
        help="exit with code 4 if this rule is broken (may be repeated; rules are below)",
    )
    parser.add_argument("--policy", type=Path, metavar="FILE", help="file of rules, one a line")
    parser.add_argument(
        "--ledger", type=Path, metavar="FOLDER", help="the client's ledger (default: $VEIL_HOME or its usual place)"
    )
    parser.add_argument(
        "-o", "--output", type=Path, default=Path("audit.html"), metavar="FILE", help="page to write (default audit.html)"
    )
    add_strict(parser)
    add_json(parser)
    parser.set_defaults(run=_audit)


def _add_attacker(parser: argparse.ArgumentParser) -> None:
    """Add the options that say what the attacker has, which `_attacker` reads."""
    parser.add_argument(
        "--against", type=Path, nargs="+", default=[], metavar="PATH", help="other releases that the server has seen"
    )
    parser.add_argument(
        "--place-photographs",
        type=Path,
        nargs="+",
        default=[],
        metavar="PATH",
        help="raw photographs of the place that the server has",
    )
    parser.add_argument("--map", type=Path, metavar="FOLDER", help="a map of the place, for what its holder learns by matching")
    parser.add_argument(
        "--codebook", type=Path, metavar="FILE", help="codebook or dictionary of the release (default: the bundled one)"
    )
    parser.add_argument("--decoys", type=Path, metavar="FILE", help="pool that the decoys came from (default: the bundled one)")
    parser.add_argument("--secret-decoys", action="store_true", help="the attacker does not have the decoys' pool")
    parser.add_argument("--database", type=Path, metavar="FILE", help="the attacker's own descriptors (a codebook)")
    parser.add_argument(
        "--attack-model", type=Path, metavar="FILE", help="networks of `veil lab train attacks` (default: the bundled ones)"
    )
    parser.add_argument("--attacker", type=Path, nargs="+", default=[], metavar="PATH", help="the attacker's own photographs")


def _add_effort(parser: argparse.ArgumentParser) -> None:
    """Add the options that say how much is attacked, and for how long."""
    parser.add_argument(
        "--only", nargs="+", metavar="ATTACK", help="run these attacks alone; the names are those that an audit prints"
    )
    parser.add_argument(
        "--attacked-features",
        type=at_least(1),
        help="features attacked at most, over all releases (default 400, or as many as the rules need)",
    )
    parser.add_argument(
        "--max-seconds",
        type=at_least(0),
        default=AUDIT_SECONDS,
        help="processor time that the attacks share; what is cut short is said (default %(default)s; 0: no limit)",
    )
    parser.add_argument(
        "--seed", type=at_least(0), default=0, help="seed by which attacked features are chosen (default %(default)s)"
    )
    parser.add_argument(
        "--threads", type=at_least(1), default=2, help="threads of the structural attacks (default %(default)s)"
    )
    parser.add_argument(
        "--workers",
        type=at_least(1),
        default=1,
        help="releases that are attacked at a time, in processes, each with an equal part of the time (default 1)",
    )
    add_engine_arguments(parser)
    parser.add_argument(
        "--pictures", type=at_least(0), default=2, help="releases of which pictures are reconstructed (default %(default)s)"
    )
    parser.add_argument(
        "--inverter",
        type=Path,
        nargs="+",
        default=[],
        metavar="FILE",
        help="networks of `veil lab train inversion` beside the bundled one, which knows raw SIFT",
    )


def _audit(arguments: argparse.Namespace) -> int:
    quiet_colmap()
    if holds_tiles(arguments.release):
        return audited_tiles(arguments)
    start = time.perf_counter()
    options = AuditOptions(
        features=arguments.attacked_features,
        seconds=float(arguments.max_seconds) or math.inf,
        seed=arguments.seed,
        threads=arguments.threads,
        pictured=arguments.pictures,
        rules=_rules(arguments),
        attacks=chosen(arguments.only) if arguments.only else ATTACKS,
    )
    releases, skipped = decoded(arguments.release, strict=arguments.strict)
    others = further_messages(arguments.against, strict=arguments.strict, skipped=skipped)
    tell_skipped(skipped)
    attacker = _attacker(arguments, list(releases.values()), {f"against {k}": v for k, v in others.items()})
    own_descriptors(attacker, list(releases.values()))  # refuses what does not fit before the originals are read
    originals = read_originals(arguments.images, list(releases.values())) if arguments.images else None
    outcome, examined = audited(
        releases,
        originals=originals.features if originals else None,
        attacker=attacker,
        options=options,
        inverters=arguments.inverter,
        read_photograph=lambda name: originals.read_rgb(name) if originals and name in originals.paths else None,
        ledger=arguments.ledger or home(),
        facts=_facts(releases, arguments.release),
        engine=arguments.engine,
        workers=arguments.workers,
        steps=StepBar,
    )
    shown = _shown(examined, originals, list(outcome.pictures))
    # With originals, the page shows photographs, and both tell how near an attack came to what did not leave the device.
    made, private = page(outcome, shown=shown, seconds=time.perf_counter() - start, say=phrase), originals is not None
    write_text(arguments.output, made, private=private)
    write_json(arguments.json, outcome.as_json() | {"skipped": skipped}, private=private)
    if str(arguments.json) != "-":
        say_outcome(arguments, outcome)
    report(arguments, arguments.output, "the report")
    return EXIT_POLICY if outcome.breaches else EXIT_OK


def _attacker(arguments: argparse.Namespace, releases: list[Message], others: Mapping[str, Message]) -> Attacker:
    """The attacker that the options describe."""
    return Attacker(
        codebook=arguments.codebook and read_codebook(arguments.codebook),
        decoys=arguments.decoys and read_codebook(arguments.decoys),
        has_pool=not arguments.secret_decoys,
        database=arguments.database and read_codebook(arguments.database),
        photographs=read_attackers(arguments.attacker, releases[0].form.space) if arguments.attacker else (),
        others=others,
        place={str(number): item for number, item in enumerate(_read_place(arguments, releases))},
        where=Map.read(arguments.map) if arguments.map else None,
        model=arguments.attack_model,
        seed=arguments.seed,
    )


def _read_place(arguments: argparse.Namespace, releases: list[Message]) -> list[Features]:
    """Raw features of the photographs that --place-photographs gives."""
    given = arguments.place_photographs
    return read_attackers(given, releases[0].form.space, option="--place-photographs") if given else []


def _rules(arguments: argparse.Namespace) -> list[Rule]:
    """The rules of --fail-on and --policy, parsed before any long work, so that a typing error costs no minutes."""
    rules = [Rule.parse(text) for text in arguments.fail_on]
    if arguments.policy:
        try:
            rules += parse_policy(read_bytes(arguments.policy).decode())
        except UnicodeDecodeError:
            raise InputError(f"{arguments.policy} is not a text file; {HELP}") from None
    return rules


def _facts(releases: Mapping[str, Message], path: Path) -> dict:
    """Facts about the first release, as `veil inspect` prints them, and the number of all releases."""
    name, first = next(iter(releases.items()))
    size = (path if path.is_file() else path / f"{name}.veil").stat().st_size
    facts = upload_facts(first, size)
    if len(releases) > 1:
        features = sum(len(message) for message in releases.values())
        facts = {"releases": f"{len(releases)}, {features} features in all; the first of them:"} | facts
    return facts


def _shown(
    examined: list[Examined], originals: Originals | None, reconstructed: list[DrawnPicture], most: int = 6
) -> list[Shown]:
    """Pictures of the first `most` releases for the report."""
    shown = []
    for item in progress(examined[:most], "drawing"):
        has_photo = originals is not None and item.truth is not None and item.truth.image in originals.paths
        row = position_pictures(item, originals.read_rgb if originals is not None and has_photo else None)
        mine = [picture for picture in reconstructed if picture.release == item.name]
        shown.append(replace(row, pictures=(*row.pictures, *reconstructed_pictures(mine))))
    return shown
