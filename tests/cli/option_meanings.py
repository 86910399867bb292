"""Declared meanings of the options that several commands have, with the commands that use each meaning.

Options that look and read the same everywhere are not listed. Who gives a command an option that is listed here reads its
meaning, and adds the command; who means something else takes another name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Meaning:
    """An option, the kind of its value (see `kind_of` in test_option_meanings.py), what it means, and the commands that use
    it so, separated by commas; `*` for all.
    """

    option: str
    kind: str
    text: str
    commands: str

    def used_by(self, here: Callable[[str], bool]) -> set[str]:
        """The commands that are named, of those that are `here`: packages that bring commands may be missing."""
        return {command for command in self.commands.split(", ") if here(command)}

    def covers(self, command: str) -> bool:
        """Whether a command is among those that use the option so."""
        return self.commands == "*" or command in self.commands.split(", ")


# Why an option may have two meanings.
REASONS = {
    "--map": "the map that is meant: here it is a folder, on a server it has an id and a name",
}
MEANINGS = (
    Meaning(
        "--attacked-features",
        "count",
        "features that are attacked at most",
        "audit, evaluate attacks, evaluate forms, evaluate learned, evaluate repeats, lab tune, lab board",
    ),
    Meaning("--attacker", "path", "photographs that the attacker has", "audit, evaluate attacks, evaluate neighborhoods"),
    Meaning("--attacks", "choice", "attacks that are run", "evaluate forms, evaluate inversion"),
    Meaning("--balance", "text", "label of the decoys, each class of which is drawn alike", "faces create, evaluate faces"),
    Meaning("--bits", "choice", "bits of a descriptor along each axis of its PCA", "evaluate tiles"),
    Meaning(
        "--budget", "budget", "processor time that runs of records may cost together", "lab results run, lab results check"
    ),
    Meaning("--bytes", "count", "bytes of a tile", "tiles cut, tiles plan, evaluate tiles"),
    Meaning(
        "--camera",
        "text",
        "COLMAP's model and intrinsics of photographs without any of their own",
        "extract, gravity, localize, client contribute, client localize, evaluate reconstruction",
    ),
    Meaning(
        "--center",
        "flag",
        "descriptors less the decoys' mean are lifted",
        "faces create, evaluate attributes, evaluate faces, evaluate identification, evaluate histories, evaluate protection",
    ),
    Meaning(
        "--codebook",
        "path",
        "file with the centroids, and the PCA, that releases are made by",
        "privatize, client contribute, client localize, localize, audit, lab train attacks, lab train inversion, evaluate "
        "homographies, evaluate localization, evaluate retrieval, evaluate defenses, evaluate inversion, lab tune",
    ),
    Meaning("--database", "path", "descriptors that the attacker has", "audit, evaluate learned, evaluate inversion"),
    Meaning(
        "--decoys",
        "path",
        "file with descriptors that decoys are drawn from",
        "privatize, client contribute, client localize, audit, faces create, evaluate faces, evaluate identification, "
        "evaluate linkage, evaluate regeneration, evaluate histories, evaluate protection, faces enroll, "
        "faces renew, faces verify, faces identify, faces calibrate, evaluate homographies, evaluate localization, "
        "evaluate retrieval, evaluate defenses, "
        "evaluate forms, evaluate learned, evaluate repeats, lab tune",
    ),
    Meaning(
        "--delta",
        "number",
        "delta of an image's epsilon",
        "budget show, budget set, budget plan, evaluate plans",
    ),
    Meaning(
        "--descriptor",
        "choice",
        "kind of the descriptors",
        "extract, codebook build, client contribute, client localize, evaluate localization, evaluate homographies, "
        "evaluate retrieval, evaluate attacks",
    ),
    Meaning(
        "--dictionary",
        "path",
        "dictionary whose words are sent, entered or inverted",
        "index, localize, invert, evaluate word-inversion",
    ),
    Meaning("--download", "number", "most 10^6 bytes of all tiles of a map together", "tiles cut, evaluate tiles"),
    Meaning("--draws", "count", "times that lines are drawn at random", "evaluate reconstruction, evaluate queries"),
    Meaning(
        "--epsilon",
        "number",
        "epsilon of each feature in words",
        "privatize, client contribute, client localize, lab train inversion, evaluate homographies, evaluate localization, "
        "evaluate retrieval, evaluate attacks, evaluate word-inversion",
    ),
    Meaning("--exact", "flag", "distances are told, not only their bands", "faces verify, faces identify"),
    Meaning(
        "--false",
        "count",
        "photographs of elsewhere that are asked, which must be refused",
        "evaluate localization, evaluate tiles",
    ),
    Meaning(
        "--features",
        "count",
        "features that an image sends",
        "privatize, client contribute, client localize, budget plan, plan map, evaluate plans, evaluate sequences",
    ),
    Meaning(
        "--figure",
        "path",
        "picture to draw",
        "budget plan, gravity, lab quality, evaluate homographies, evaluate reconstruction, evaluate queries, "
        "evaluate localization, evaluate tiles, evaluate attacks, evaluate defenses, evaluate inversion, evaluate "
        "attributes, evaluate faces, evaluate identification, evaluate protection, lab tune",
    ),
    Meaning(
        "--first-octave",
        "count",
        "octave at which SIFT begins: -1 doubles the image",
        "extract, evaluate inversion, evaluate word-inversion",
    ),
    Meaning("--for", "choice", "what is made for", "index, privatize"),
    Meaning(
        "--folds",
        "count",
        "turns in which one part after another is held out",
        "evaluate queries, evaluate localization, evaluate upright, evaluate tiles, evaluate forms, evaluate "
        "faces, evaluate plans",
    ),
    Meaning(
        "--forms",
        "choice",
        "forms in which photographs are sent",
        "evaluate localization, evaluate tiles, evaluate forms, lab board",
    ),
    Meaning(
        "--fpir",
        "number",
        "share of strangers who may be identified as somebody",
        "faces calibrate, evaluate identification",
    ),
    Meaning(
        "--gravity",
        "path",
        "table of gravity, image,x,y,z",
        "privatize, client contribute, client localize, map, map import, evaluate reconstruction",
    ),
    Meaning(
        "--gravity-noise",
        "number",
        "degrees by which readings of gravity are off",
        "evaluate reconstruction",
    ),
    Meaning("--images", "path", "originals of what was released: photographs and features", "view, audit"),
    Meaning(
        "--inverter",
        "path",
        "network that turns features into pictures",
        "audit, invert, evaluate inversion, evaluate word-inversion",
    ),
    Meaning("--json", "path", "where the record is written as JSON", "*"),
    Meaning("--labels", "path", "table of labels of photographs", "faces describe, evaluate attributes"),
    Meaning(
        "--license",
        "text",
        "license of the photographs that something is learned from",
        "codebook build, lab train inversion",
    ),
    Meaning(
        "--lifting",
        "choice",
        "way of lifting to subspaces",
        "faces create, evaluate attacks, evaluate inversion, evaluate localization, evaluate identification, evaluate faces, "
        "evaluate histories, evaluate protection, lab train inversion",
    ),
    Meaning("--list", "flag", "what is there is printed", "serve token, serve backup, serve tiles"),
    Meaning(
        "--m",
        "count",
        "dimension of a subspace, or words that a feature sends",
        "privatize, client contribute, client localize, budget plan, faces create, evaluate defenses, "
        "evaluate identification, lab train inversion, evaluate localization, evaluate attacks, evaluate "
        "inversion, evaluate attributes, evaluate faces, evaluate histories, evaluate protection, evaluate "
        "plans, evaluate word-inversion, lab quality",
    ),
    Meaning(
        "--map",
        "text",
        "map of a server, by its id or name",
        "serve place, serve suspects, client contribute, client localize",
    ),
    Meaning("--map", "path", "folder of a map", "audit"),
    Meaning("--matches", "path", "folder of matches that are kept", "map, map remove"),
    Meaning(
        "--max-features",
        "count",
        "features that are extracted from an image at most",
        "extract, evaluate homographies, evaluate reconstruction, evaluate queries, evaluate localization, "
        "evaluate upright, evaluate tiles, lab train attacks, evaluate retrieval, evaluate defenses, "
        "evaluate forms, evaluate learned, evaluate neighborhoods, evaluate repeats, evaluate inversion, evaluate plans, "
        "evaluate word-inversion, lab tune, evaluate sequences",
    ),
    Meaning("--max-seconds", "number", "seconds after which work stops", "map, localize, evaluate attacks, evaluate forms"),
    Meaning("--max-seconds", "count", "seconds after which work stops", "audit"),
    Meaning(
        "--most-strangers",
        "count",
        "photographs of --strangers that are used at most",
        "evaluate retrieval, evaluate sequences",
    ),
    Meaning("--name", "text", "name of what is made", "serve token, serve tiles"),
    Meaning(
        "--nearest",
        "count",
        "images of the map that are taken to be near",
        "localize, evaluate upright, evaluate sequences",
    ),
    Meaning("--noise", "count", "queries of noise of either kind", "evaluate queries, evaluate tiles"),
    Meaning("--normalization", "choice", "normalization of SIFT", "extract, codebook build, map import"),
    Meaning("--only", "text", "names of those that are run, of attacks or of defenses", "audit, evaluate defenses"),
    Meaning(
        "--output",
        "path",
        "file or folder to write",
        "extract, privatize, gravity, codebook build, lab train attacks, map, map import, map remove, map align, "
        "tiles cut, serve backup, serve token, view, audit, demo, faces describe, lab train inversion, invert, lab tune, "
        "lab board",
    ),
    Meaning("--pair-count", "count", "images that each is paired with", "map, plan map"),
    Meaning("--pairs", "text", "pairs of images that are matched", "map"),
    Meaning("--pairs", "choice", "pairs of images that are matched", "plan map"),
    Meaning("--per-image", "count", "features of each photograph that are lifted", "evaluate attacks, evaluate defenses"),
    Meaning(
        "--others",
        "count",
        "further uploads that the attacker has beside the attacked one",
        "evaluate forms, evaluate learned, lab tune",
    ),
    Meaning(
        "--person",
        "text",
        "whose template or failed attempts it is about",
        "faces enroll, faces renew, faces verify, faces revoke, faces unlock",
    ),
    Meaning(
        "--photographs",
        "count",
        "photographs that a study takes at most",
        "evaluate attacks, evaluate defenses, evaluate forms, evaluate learned, evaluate neighborhoods, evaluate repeats, "
        "evaluate inversion, evaluate word-inversion, lab tune, lab board",
    ),
    Meaning(
        "--purpose",
        "text",
        "purpose of templates, of which each has its own",
        "faces enroll, faces renew, faces verify, faces revoke, faces identify",
    ),
    Meaning("--receipt", "path", "where receipts of deletions are written", "map remove, client delete, client map delete"),
    Meaning(
        "--reconstructions",
        "path",
        "picture of what networks draw, beside the photographs",
        "evaluate inversion, evaluate reconstruction",
    ),
    Meaning("--resume", "flag", "an interrupted training goes on", "lab train attacks, lab train inversion"),
    Meaning(
        "--same-place",
        "text",
        "scenes of one place, which are no strangers to each other",
        "evaluate queries, evaluate localization, evaluate tiles",
    ),
    Meaning(
        "--seed",
        "count",
        "seed of what is drawn at random",
        "codebook build, lab quality, map, map import, lab train attacks, lab train inversion, "
        "evaluate attacks, evaluate forms, evaluate learned, evaluate neighborhoods, evaluate repeats, evaluate inversion, "
        "evaluate attributes, evaluate faces, evaluate identification, evaluate linkage, "
        "evaluate regeneration, evaluate histories, evaluate protection, lab tune, "
        "lab board, evaluate word-inversion, evaluate answers",
    ),
    Meaning("--skip", "count", "photographs that are left out at the beginning", "lab train attacks, evaluate learned"),
    Meaning(
        "--source",
        "text",
        "where the photographs come from that something is learned from",
        "codebook build, lab train attacks, lab train inversion",
    ),
    Meaning("--steps", "count", "steps of a training", "lab train attacks, lab train inversion, evaluate neighborhoods"),
    Meaning(
        "--strangers",
        "path",
        "photographs of other places, which must be refused",
        "evaluate queries, evaluate upright, evaluate tiles, evaluate retrieval, demo, evaluate sequences",
    ),
    Meaning("--strict", "flag", "what cannot be used is refused, not skipped", "extract, map, localize, audit"),
    Meaning(
        "--threads",
        "count",
        "threads of one process",
        "index, serve tiles, evaluate attacks, evaluate retrieval, evaluate forms, evaluate defenses, doctor",
    ),
    Meaning(
        "--word-count",
        "count",
        "words of a dictionary",
        "budget plan, codebook build, evaluate localization, evaluate upright, evaluate tiles, "
        "evaluate attacks, evaluate plans, evaluate sequences",
    ),
    Meaning("--word-samples", "count", "samples of a search among candidate words", "evaluate localization"),
    Meaning(
        "--workers",
        "count",
        "processes, or pairs and releases that are worked on at a time",
        "codebook build, lab match, map, map import, localize, evaluate homographies, evaluate reconstruction, demo, serve, "
        "audit, evaluate queries, evaluate localization, evaluate upright, evaluate plans, lab tune",
    ),
)
