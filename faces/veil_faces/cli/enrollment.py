"""`veil faces create | enroll | renew | revoke | list`: stores of face templates, and who is in them."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from veil.cli.common import report, say, say_table, tell, write_json
from veil.errors import InputError
from veil.report.tables import Name, Number, Table, names
from veil_faces.cli.calibrate import print_sizes, print_what_is_needed
from veil_faces.cli.decisions import face_vector, opened_store
from veil_faces.files.face_home import FaceHome
from veil_faces.files.face_store import FaceStore
from veil_faces.files.faces import read_faces
from veil_faces.naming import checked_name
from veil_faces.template import FaceClient, TemplateScheme, decoys_digest


def create(arguments: argparse.Namespace) -> int:
    """Run `veil faces create`: make an empty store. Returns the exit code."""
    decoys = read_faces(arguments.decoys)
    scheme = TemplateScheme(
        strategy=arguments.lifting,
        m=arguments.m,
        comparison=arguments.by,
        space=decoys.space,
        decoys=decoys_digest(decoys, arguments.balance),
        keyed=not arguments.no_key,
        centered=arguments.by == "s2s" if arguments.center is None else arguments.center,
        balance=arguments.balance,
        quota=tuple(arguments.quota),
    )
    home = FaceHome.for_new_store(on_new=tell)
    FaceClient(scheme=scheme, decoys=decoys, secret=home.secret)  # refuses what would not work later
    FaceStore.create(arguments.store, scheme, home)
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


def enroll(arguments: argparse.Namespace) -> int:
    """Run `veil faces enroll` or `renew`: store a person's template. Returns the exit code."""
    person, purpose = checked_name(arguments.person, "person"), checked_name(arguments.purpose, "purpose")
    store, client = opened_store(arguments)
    if arguments.label is not None and not store.scheme.balance:
        raise InputError(f"{arguments.store} balances no label; leave --label out, or create a store with --balance")
    vector = face_vector(arguments, store.scheme)
    version = store.next_version(person, purpose)
    template = client.template(vector, purpose=purpose, person=person, version=version, label=arguments.label)
    store.enroll(person, purpose, version, template, renew=arguments.renew)
    write_json(arguments.json, {"person": person, "purpose": purpose, "version": version}, private=True)
    done = "renewed" if arguments.renew else "enrolled"
    say(arguments, f"{done} {person} for {purpose}: template {version}. An obfuscation without proof.")
    return 0


def revoke(arguments: argparse.Namespace) -> int:
    """Run `veil faces revoke`: erase a person's template. Returns the exit code."""
    person, purpose = checked_name(arguments.person, "person"), checked_name(arguments.purpose, "purpose")
    FaceStore(arguments.store, FaceHome.for_store(arguments.store)).revoke(person, purpose)
    write_json(arguments.json, {"person": person, "purpose": purpose}, private=True)
    say(arguments, f"revoked the template of {person} for {purpose}; its numbers are erased")
    return 0


def list_templates(arguments: argparse.Namespace) -> int:
    """Run `veil faces list`: say who is enrolled. Returns the exit code."""
    store = FaceStore(arguments.store, FaceHome.for_store(arguments.store))
    lines = store.enrolled()
    scheme, threshold = store.scheme, store.threshold
    write_json(
        arguments.json,
        {
            "setup": _record(scheme),
            "threshold": None if threshold is None else threshold.as_json(),
            "identification": None if store.open_set is None else store.open_set.as_record(),
            "templates": [
                {"person": line.person, "purpose": line.purpose, "version": line.version, "valid": line.valid} for line in lines
            ],
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
    return 0


def template_table(rows: Sequence[tuple[str, str, str, str]]) -> Table:
    """The table of templates: purpose, person, version and state of each."""
    return Table(columns=[*names("purpose", "person"), Number("version"), Name("state")], rows=rows, labels=2)
