"""`veil faces calibrate`: the threshold of a store, fitted to pairs of faces; and the client that all commands make."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from veil.cli.common import say, write_json
from veil.errors import InputError
from veil.evaluate.faces import best_threshold, error_rates
from veil.faces.collection import Faces
from veil.faces.template import Client, scores
from veil.files.client import home, load_secret
from veil.files.face_pairs import read_pairs
from veil.files.face_store import FaceStore, Threshold
from veil.files.faces import read_faces

PAIRS_HELP = "CSV, LFW's pairs.txt, lines `same a b` (AgeDB-30), or a split of CFP (Protocol/Split/FP)"


def client_of(store: FaceStore, decoys: Path) -> Client:
    """This device, with a store's setup and decoys."""
    return Client(setup=store.setup, decoys=read_faces(decoys), secret=load_secret(home()))


def calibrate(arguments: argparse.Namespace) -> int:
    """Run the command."""
    if arguments.far is not None and not 0 < arguments.far < 1:
        raise InputError(f"--far must lie between 0 and 1, got {arguments.far:g}")
    store = FaceStore(arguments.store)
    faces, client = read_faces(arguments.faces), client_of(store, arguments.decoys)
    pairs = read_pairs(arguments.pairs, faces)
    distance = np.array([_score(client, faces, a, b) for a, b in zip(pairs.left.tolist(), pairs.right.tolist(), strict=True)])
    limit = best_threshold(distance, pairs.same)
    if arguments.far is not None:
        accepts, _ = error_rates(distance, pairs.same)
        steps = np.unique(distance)
        allowed = np.flatnonzero(accepts[1:] <= arguments.far)
        if not len(allowed):
            raise InputError(f"no threshold keeps false accepts to {arguments.far:g} on these pairs; give more of them")
        limit = float(steps[allowed[-1]])
    threshold = Threshold(
        distance=limit,
        false_accepts=float((distance[~pairs.same] <= limit).mean()),
        false_rejects=float((distance[pairs.same] > limit).mean()),
        pairs=len(pairs),
    )
    store.calibrate(threshold)
    write_json(arguments.json, threshold.__dict__)
    say(
        arguments,
        f"threshold {limit:.3f}: {threshold.false_accepts:.2%} false accepts and {threshold.false_rejects:.2%} false rejects "
        f"on {len(pairs)} pairs, on which it was fitted",
    )
    return 0


def _score(client: Client, faces: Faces, enrolled: int, probe: int) -> float:
    template = client.template(faces.vectors[enrolled], purpose="calibration", person=faces.names[enrolled], version=1)
    return float(scores(client.probe(faces.vectors[probe], purpose="calibration", template=template), template)[0])
