"""`veil faces create | enroll | renew | revoke | list | reseal`: stores of face templates, and who is in them."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from veil.cli.common import at_least, report, say, say_table, tell, write_json
from veil.cli.records import option
from veil.errors import InputError
from veil.mechanisms.profile import STRATEGIES, Strategy
from veil.report.tables import Name, Number, Table, names
from veil_faces.attempts import AttemptLimit, utc
from veil_faces.cli.asked_store import AskedDecoys, AskedFace, AskedPerson, AskedStore, opened_store
from veil_faces.cli.calibrate import print_sizes, print_what_is_needed
from veil_faces.cli.decisions import face_vector
from veil_faces.files.face_home import FaceHome
from veil_faces.files.face_store import FaceStore, reseal
from veil_faces.files.faces import read_faces
from veil_faces.naming import checked_name
from veil_faces.template import COMPARISONS, FaceClient, TemplateScheme, decoys_digest


def _class_count(text: str) -> tuple[str, int]:
    """Parse CLASS=COUNT (an argparse type)."""
    name, sign, count = text.rpartition("=")
    if not (sign and name and count.isdecimal()):
        raise argparse.ArgumentTypeError(f"a quota is CLASS=COUNT, got {text!r}")
    return name, int(count)


@dataclass(frozen=True, kw_only=True)
class Create(AskedDecoys):
    """Make an empty store, and say how its templates are made and compared; thresholds are fitted to that."""

    lifting: Strategy = option("way of lifting (default %(default)s)", default="hybrid", choices=STRATEGIES[:3])
    m: int = option("dimension of the templates (default %(default)s)", default=4, parse=at_least(2))
    by: str = option(
        "probes are lifted along their template's directions (default), turned only (p2s), or lifted afresh (s2s); "
        "the first cannot identify",
        default="parallel",
        choices=COMPARISONS,
    )
    balance: str = option(
        "a label of the decoys, of which each class is drawn alike (hybrid+): it hides the label's value",
        default="",
        metavar="LABEL",
    )
    quota: tuple[tuple[str, int], ...] = option(
        "with --balance: decoys of each class in a round (default: one of each)",
        default=(),
        parse=_class_count,
        metavar="CLASS=COUNT",
    )
    center: bool | None = option(
        "subtract the decoys' mean first, which parts two lifted templates better (default: with --by s2s only)"
    )
    failures: int = option(
        "failed attempts a day of each person, and of identification, after the first five (default %(default)s)",
        default=AttemptLimit().a_day,
        parse=at_least(1),
    )


@dataclass(frozen=True, kw_only=True)
class Enroll(AskedFace, AskedPerson):
    """Make the template of a person for a purpose. One is valid at a time: `veil faces renew` replaces it."""

    label: str | None = option(
        "the person's class where decoys are balanced (default: as the nearest decoys have it)", metavar="CLASS"
    )


@dataclass(frozen=True, kw_only=True)
class Renew(Enroll):
    """Replace the template of a person: the old one is erased, and verifies nobody. Renew from another photograph: two
    templates of one photograph meet in its descriptor, for whoever kept the old one.
    """


@dataclass(frozen=True, kw_only=True)
class Revoke(AskedPerson):
    """Erase the template of a person for a purpose: it verifies nobody from now on."""


@dataclass(frozen=True, kw_only=True)
class Unlock(AskedStore):
    """Forget the failed attempts of a person, or of everybody and of identification, after too many: the next question is
    answered. Whoever may run this has no limit, so it is for the store's owner.
    """

    person: str | None = option("the person who is unlocked (default: everybody, and identification)")


@dataclass(frozen=True, kw_only=True)
class ListTemplates(AskedStore):
    """List who is enrolled, and for what, and failed attempts. Revoked templates are listed, their numbers are gone."""


@dataclass(frozen=True, kw_only=True)
class Reseal(AskedStore):
    """Accept an older copy of a store, or another store, in the place of one that this client saw, and seal it anew: no other
    copy of it is accepted any longer. Templates that were revoked since the copy was made verify again. A store that
    somebody changed is never sealed.
    """


def create(arguments: Create) -> int:
    """Run `veil faces create`: make an empty store. Returns the exit code."""
    decoys = read_faces(arguments.decoys)
    scheme = TemplateScheme(
        strategy=arguments.lifting,
        m=arguments.m,
        comparison=arguments.by,
        space=decoys.space,
        decoys=decoys_digest(decoys, arguments.balance),
        centered=arguments.by == "s2s" if arguments.center is None else arguments.center,
        balance=arguments.balance,
        quota=arguments.quota,
    )
    home = FaceHome.for_new_store(on_new=tell)
    FaceClient(scheme=scheme, decoys=decoys, secret=home.secret)  # refuses what would not work later
    FaceStore.create(arguments.store, scheme, home, limit=AttemptLimit(a_day=arguments.failures))
    write_json(arguments.json, _record(scheme), private=True)
    report(arguments, arguments.store, "an empty store")
    print_what_is_needed(arguments, scheme)
    return 0


def _record(scheme: TemplateScheme) -> dict[str, object]:
    """The scheme as docs/reference/json.md lists it; its keys are those of earlier versions."""
    return {
        "lifting": scheme.strategy,
        "m": scheme.m,
        "by": scheme.comparison,
        "keyed": scheme.keyed,
        "centered": scheme.centered,
        "balance": scheme.balance,
        "quota": dict(scheme.quota),
    }


def enroll(arguments: Enroll) -> int:
    """Run `veil faces enroll` or, with the options of it, `renew`: store a person's template. Returns the exit code."""
    is_renewal = isinstance(arguments, Renew)
    person, purpose = checked_name(arguments.person, "person"), checked_name(arguments.purpose, "purpose")
    store, client = opened_store(arguments)
    if arguments.label is not None and not store.scheme.balance:
        raise InputError(f"{arguments.store} balances no label; leave --label out, or create a store with --balance")
    vector = face_vector(arguments, store.scheme)
    version = store.next_version(person, purpose)
    template = client.template(vector, purpose=purpose, person=person, version=version, label=arguments.label)
    store.enroll(person, purpose, version, template, renew=is_renewal)
    write_json(arguments.json, {"person": person, "purpose": purpose, "version": version}, private=True)
    done = "renewed" if is_renewal else "enrolled"
    say(arguments, f"{done} {person} for {purpose}: template {version}. An obfuscation without proof.")
    return 0


def revoke(arguments: Revoke) -> int:
    """Run `veil faces revoke`: erase a person's template. Returns the exit code."""
    person, purpose = checked_name(arguments.person, "person"), checked_name(arguments.purpose, "purpose")
    FaceStore(arguments.store, FaceHome.for_store(arguments.store)).revoke(person, purpose)
    write_json(arguments.json, {"person": person, "purpose": purpose}, private=True)
    say(arguments, f"revoked the template of {person} for {purpose}; its numbers are erased")
    return 0


def unlock(arguments: Unlock) -> int:
    """Run `veil faces unlock`: forget failed attempts. Returns the exit code."""
    store = FaceStore(arguments.store, FaceHome.for_store(arguments.store))
    store.unlock(arguments.person)
    write_json(arguments.json, {"person": arguments.person}, private=True)
    say(arguments, f"unlocked {arguments.person or 'everybody, and identification'}")
    return 0


def list_templates(arguments: ListTemplates) -> int:
    """Run `veil faces list`: say who is enrolled. Returns the exit code."""
    store = FaceStore(arguments.store, FaceHome.for_store(arguments.store))
    lines = store.enrolled()
    scheme, threshold = store.scheme, store.threshold
    failed = [(who, item.number, item.at_s + item.wait_s(store.limit)) for who, item in store.failed_attempts().items()]
    write_json(
        arguments.json,
        {
            "setup": _record(scheme),
            "threshold": None if threshold is None else threshold.as_json(),
            "identification": None if store.open_set is None else store.open_set.as_record(),
            "templates": [
                {"person": line.person, "purpose": line.purpose, "version": line.version, "valid": line.valid} for line in lines
            ],
            "failures_a_day": store.limit.a_day,
            "failed": [{"person": who, "number": number, "again": utc(again_s)} for who, number, again_s in failed],
        },
        private=True,
    )
    fitted = "not calibrated" if threshold is None else f"threshold {threshold.distance:.3f}"
    balanced = f", {scheme.balance} balanced" if scheme.balance else ""
    say(
        arguments,
        f"{scheme.strategy} lifting{balanced}, m = {scheme.m}, {scheme.comparison}, "
        f"{'' if scheme.centered else 'not '}centered, {'keyed' if scheme.keyed else 'no key'}; {fitted}",
    )
    if store.open_set is not None:
        print_sizes(arguments, store.open_set, [sum(line.valid for line in lines)])
    rows = [(line.purpose, line.person, str(line.version), "valid" if line.valid else "revoked") for line in lines]
    say_table(arguments, template_table(rows))
    for who, number, again_s in failed:
        say(arguments, f"{who or 'identification'}: {number:.1f} failed attempts count; may be asked from {utc(again_s)} on")
    return 0


def reseal_store(arguments: Reseal) -> int:
    """Run `veil faces reseal`: accept a store that was put back. Returns the exit code."""
    lines = reseal(arguments.store, FaceHome.for_store(arguments.store))
    record = [{"person": line.person, "purpose": line.purpose, "version": line.version} for line in lines]
    write_json(arguments.json, {"templates": record}, private=True)
    say(arguments, f"sealed {arguments.store} with {len(lines)} valid templates:")
    say_table(arguments, template_table([(line.purpose, line.person, str(line.version), "valid") for line in lines]))
    return 0


def template_table(rows: Sequence[tuple[str, str, str, str]]) -> Table:
    """The table of templates: purpose, person, version and state of each."""
    return Table(columns=[*names("purpose", "person"), Number("version"), Name("state")], rows=rows, labels=2)
