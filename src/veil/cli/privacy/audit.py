"""`veil audit`: every known attack is run on one's own upload; the report has pictures, and numbers with their intervals."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypedDict

from veil.attacks.registry import ATTACKS, chosen
from veil.attacks.time_budget import AUDIT_SECONDS
from veil.audit.audit_result import Audit, AuditResultsJson, results_of
from veil.audit.finding import Finding
from veil.audit.policy import Rule, parse_policy
from veil.cli.common import (
    EXIT_OK,
    EXIT_POLICY,
    Commands,
    StepBar,
    at_least,
    explain,
    progress,
    quiet_colmap,
    report,
    say_table,
    tell_skipped,
    write_json,
)
from veil.cli.engine_arguments import AskedEngine
from veil.cli.privacy.audit_answers import audited_answers
from veil.cli.privacy.audit_tiles import audited_tiles
from veil.cli.privacy.inspect import MessageFactsJson, upload_facts
from veil.cli.privacy.originals import Originals, read_attackers, read_originals
from veil.cli.records import Record, add_record_command, json_file, option, positional, strict_flag
from veil.cli.remedies import advised, phrase
from veil.device.attacker import Attacker, own_descriptors
from veil.device.auditing import AuditOptions, run_audit
from veil.features import Features
from veil.files.atomic import write_text
from veil.files.codebooks import read_codebook
from veil.files.device.home import home
from veil.files.tables import read_text
from veil.files.tiles import holds_tiles
from veil.json_records.values import Reasons
from veil.ldp.rounding import inward
from veil.places.held_map import Map
from veil.places.uploads import decoded, further_messages
from veil.report.audit import Shown, page, position_pictures, reconstructed_pictures
from veil.report.tables import Name, Remark, Row, Table, interval, numbers, percent
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
  veil audit map/ --answers poster.jpg chair/                     whether a map's answers tell that these are there, and where

rules of --fail-on and --policy (one a line, # begins a comment):
  structural>5%          any attack of a family: structural, distribution, intersection, repeat, views, matches, positions ...
  lattice.exact>0        one attack; recovered (the default), certified, exact, identified, within_0.02, _0.1, _0.2, _0.4, _0.6
  positions.within_5px>20%
  epsilon.image>100      of words: feature, object or image
A share keeps a rule if its whole 95 % interval does: 0 of 60 features may be up to 6 %. A rule > 0 asks for not one among
the features attacked. A rule that no attack could judge counts as broken. Exit code 4 says that a rule is broken.
"""


@dataclass(frozen=True, kw_only=True)
class AskedAttacker(Record):
    """Options that say what the attacker has."""

    against: tuple[Path, ...] = option("other releases that the server has seen", default=(), metavar="PATH")
    place_photographs: tuple[Path, ...] = option("raw photographs of the place that the server has", default=(), metavar="PATH")
    map: Path | None = option("a map of the place, for what its holder learns by matching", metavar="FOLDER")
    codebook: Path | None = option("codebook or dictionary of the release (default: the bundled one)", metavar="FILE")
    decoys: Path | None = option("pool that the decoys came from (default: the bundled one)", metavar="FILE")
    secret_decoys: bool = option("the attacker does not have the decoys' pool", default=False)
    database: Path | None = option("the attacker's own descriptors (a codebook)", metavar="FILE")
    attack_model: Path | None = option(
        "networks of `veil lab train attacks` or `veil lab tune` (default: the bundled ones)", metavar="FILE"
    )
    attacker: tuple[Path, ...] = option("the attacker's own photographs", default=(), metavar="PATH")


@dataclass(frozen=True, kw_only=True)
class AskedEffort(AskedEngine):
    """Options that say how much is attacked, and for how long."""

    only: tuple[str, ...] | None = option("run these attacks alone; the names are those that an audit prints", metavar="ATTACK")
    attacked_features: int | None = option(
        "features attacked at most, over all releases (default 400, or as many as the rules need)", parse=at_least(1)
    )
    max_seconds: int = option(
        "processor time that the attacks share; what is cut short is said (default %(default)s; 0: no limit)",
        default=AUDIT_SECONDS,
        parse=at_least(0),
    )
    workers: int = option(
        "releases that are attacked at a time, in processes, each with an equal part of the time (default 1)",
        default=1,
        parse=at_least(1),
    )
    pictures: int = option("releases of which pictures are reconstructed (default %(default)s)", default=2, parse=at_least(0))
    inverter: tuple[Path, ...] = option(
        "networks of `veil lab train inversion` beside the bundled one, which knows raw SIFT", default=(), metavar="FILE"
    )


@dataclass(frozen=True, kw_only=True)
class AskedAudit(AskedAttacker, AskedEffort):
    """Attack a release with everything that is known, and tell in numbers and pictures what was recovered. With the
    originals, every attack is measured; without them, only what an attack certifies by itself. A number is what known
    attacks reach, a lower bound of what leaks: the audit can find a release broken, never safe.
    Of a folder of tiles (`veil tiles cut`), which are public, it draws what they show of the place, beside photographs.
    With --answers it asks a map for objects, and tells which of them its poses give away.
    """

    release: Path = positional("a message (.veil) or a folder of them, a folder of tiles, or with --answers a map")
    answers: tuple[Path, ...] = option(
        "ask the map for these objects: a photograph that something flat fills, or a folder of photographs of one object",
        default=(),
        metavar="OBJECT",
    )
    images: tuple[Path, ...] = option("the originals: features.h5 and photographs", default=(), metavar="PATH")
    fail_on: tuple[str, ...] = option(
        "exit with code 4 if this rule is broken (may be repeated; rules are below)",
        default=(),
        metavar="RULE",
        repeated=True,
    )
    policy: Path | None = option("file of rules, one a line", metavar="FILE")
    output: Path = option("page to write (default audit.html)", default=Path("audit.html"), short="-o", metavar="FILE")
    strict: bool = strict_flag()
    json: Path | None = json_file()


class _SeveralJson(TypedDict, total=False):
    releases: str


class ReleaseFactsJson(_SeveralJson, MessageFactsJson):
    """Facts about the first release, and the number of several."""


class AuditedReleaseJson(ReleaseFactsJson):
    """The releases that were attacked."""

    messages: list[str]


class AuditUploadsJson(AuditResultsJson):
    """An audit of uploads, and why messages were left out."""

    release: AuditedReleaseJson
    skipped: Reasons


def register(commands: Commands) -> None:
    """Add `veil audit` to the parser's commands."""
    summary = "what the server can see: every known attack on your own upload"
    add_record_command(commands, "audit", summary, EXAMPLES, AskedAudit, _audit)


def _audit(arguments: AskedAudit) -> int:
    quiet_colmap()
    if arguments.answers:
        return audited_answers(arguments)
    if holds_tiles(arguments.release):
        return audited_tiles(arguments)
    start = time.perf_counter()
    options = AuditOptions(
        features=arguments.attacked_features,
        seconds=float(arguments.max_seconds) or math.inf,
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
    facts = _facts(releases, arguments.release)
    outcome = run_audit(
        releases,
        originals=originals.features if originals else None,
        attacker=attacker,
        options=options,
        inverters=arguments.inverter,
        read_photograph=lambda name: originals.read_rgb(name) if originals and name in originals.paths else None,
        ledger=home(),
        facts=facts,
        engine=arguments.engine,
        workers=arguments.workers,
        steps=StepBar,
    )
    shown = _shown(releases, outcome, originals)
    # With originals, the page shows photographs, and both tell how near an attack came to what did not leave the device.
    made, private = page(outcome, shown=shown, seconds=time.perf_counter() - start, say=phrase), originals is not None
    write_text(arguments.output, made, private=private)
    record: AuditUploadsJson = {
        "release": {"messages": list(outcome.messages), **facts},
        **results_of(outcome),
        "skipped": skipped,
    }
    write_json(arguments.json, record, private=private)
    if str(arguments.json) != "-":
        say_table(arguments, attack_table(outcome.findings))
        explain(arguments, *_sentences(outcome))
    report(arguments, arguments.output, "the report")
    return EXIT_POLICY if outcome.breaches else EXIT_OK


def _attacker(arguments: AskedAudit, releases: list[Message], others: Mapping[str, Message]) -> Attacker:
    """The attacker that the options describe."""
    return Attacker(
        codebook=read_codebook(arguments.codebook) if arguments.codebook else None,
        decoys=read_codebook(arguments.decoys) if arguments.decoys else None,
        has_pool=not arguments.secret_decoys,
        database=read_codebook(arguments.database) if arguments.database else None,
        photographs=read_attackers(arguments.attacker, releases[0].form.space) if arguments.attacker else (),
        others=others,
        place={str(number): item for number, item in enumerate(_read_place(arguments, releases))},
        where=Map.read(arguments.map) if arguments.map else None,
        model=arguments.attack_model,
    )


def _read_place(arguments: AskedAudit, releases: list[Message]) -> list[Features]:
    """Raw features of the photographs that --place-photographs gives."""
    given = arguments.place_photographs
    return read_attackers(given, releases[0].form.space, option="--place-photographs") if given else []


def _rules(arguments: AskedAudit) -> list[Rule]:
    """The rules of --fail-on and --policy, parsed before any long work, so that a typing error costs no minutes."""
    rules = [Rule.parse(text) for text in arguments.fail_on]
    if arguments.policy:
        rules += parse_policy(read_text(arguments.policy))
    return rules


def _facts(releases: Mapping[str, Message], path: Path) -> ReleaseFactsJson:
    """Facts about the first release, as `veil inspect` prints them, and the number of all releases."""
    name, first = next(iter(releases.items()))
    size = (path if path.is_file() else path / f"{name}.veil").stat().st_size
    several: _SeveralJson = {}
    if len(releases) > 1:
        features = sum(len(message) for message in releases.values())
        several["releases"] = f"{len(releases)}, {features} features in all; the first of them:"
    return {**several, **upload_facts(first, size)}


def _shown(releases: Mapping[str, Message], outcome: Audit, originals: Originals | None, most: int = 6) -> list[Shown]:
    """Pictures of the first `most` releases for the report."""
    shown = []
    for name in progress(list(releases)[:most], "drawing"):
        has_photo = originals is not None and outcome.originals.get(name) in originals.paths
        row = position_pictures(outcome, name, releases[name], originals.read_rgb if originals and has_photo else None)
        mine = [picture for picture in outcome.pictures if picture.release == name]
        shown.append(replace(row, pictures=(*row.pictures, *reconstructed_pictures(mine))))
    return shown


def attack_table(findings: Sequence[Finding]) -> Table:
    """The table of attacks: shares of the features that each recovered, and the median error of its estimates."""
    heads = "count", "recovered %", "95 % interval", "exact %", "certified %", "error", "time s"
    return Table(columns=[Name("attack"), *numbers(*heads)], rows=[_row(finding) for finding in findings])


def _row(finding: Finding) -> Row:
    """The row of an attack; what it could not do is a remark."""
    score, recovered = finding.score, finding.recovered
    if finding.skipped:
        return Remark(labels=(finding.attack,), text=f"not run: {advised(finding.skipped, finding.remedy)}")
    if recovered is None:
        return Remark(labels=(finding.attack,), text="; ".join(finding.notes))
    exact = None if score is None or score.exact is None else score.exact.value
    median = None if score is None else score.median_distance
    return (
        finding.attack,
        str(finding.features),
        percent(recovered.value),
        interval(recovered.low, recovered.high),
        percent(exact),
        percent(None if finding.certified is None else finding.certified.value),
        "" if median is None else f"{median:.{1 if median < 1e-3 else 2}g}",
        f"{finding.seconds:.{1 if finding.seconds < 100 else 0}f}",
    )


def _sentences(outcome: Audit) -> Iterator[str]:
    """Findings beside the table, ending with the verdict."""
    for picture in outcome.pictures:
        if picture.ssim is not None:
            yield (
                f"picture of {picture.release}, {picture.attack}: ssim {picture.ssim:.3f}, "
                f"psnr {picture.psnr:.1f} dB, mae {picture.mae:.3f}"
            )
    if outcome.measured is not None:
        yield f"epsilon is at least {inward(outcome.measured.low, 3)} ({outcome.measured.trials:,} trials, 95 %)"
    for names, why in outcome.told_not_looked_at:
        yield f"nothing to look at for {names}: {why}"
    yield from outcome.told_time(phrase)[int(not any(finding.cut_short for finding in outcome.findings)) :]
    for rule, why in outcome.breaches.items():
        yield f"broken rule {rule}: {why}"
    yield advised(str(outcome.verdict), outcome.verdict.remedy)
