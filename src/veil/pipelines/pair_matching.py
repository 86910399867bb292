"""Matching of listed pairs of images block by block: in this process, on several, or on a cluster, and never twice.

Each block is computed from files that it names and becomes one file of a store (`veil.files.match_store`), so that it does not
matter who computes it, nor how often a run is killed (docs/theory/scale.md#blocks).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from veil.engine import Engine, task_threads
from veil.errors import InputError
from veil.files.features import holds_features, read_features
from veil.files.match_store import DigestPair, MatchStore, turned
from veil.forms import Form
from veil.matching import Matches, match_pairs
from veil.matching.blocks import form_digest, in_blocks
from veil.matching.pairs import match_pairs_by_network
from veil.pipelines.images_on_demand import digest_in
from veil.pipelines.network_matching import NetworkMatching
from veil.pipelines.uploads import load_images, loaded
from veil.progress import Progress

# How pairs are matched, as far as it changes matches: a store of another kind is not used.
KIND = "mutual nearest neighbors 1"


@dataclass(frozen=True, kw_only=True)
class BlockTask:
    """A block for any process that reaches the files: the `folder` of the store, `pairs` of digests, and where images are.

    `files` gives the path of the file that holds each image, and the image's name there, by digest.
    """

    folder: str
    pairs: tuple[DigestPair, ...]
    files: tuple[tuple[str, str, str], ...]

    def __repr__(self) -> str:
        return f"block of {len(self.pairs)} pairs of {len(self.files)} images"


def compute_block(task: BlockTask) -> str:
    """Match the pairs of a block from files, write it, and return the path of its file.

    Raises InputError if a file no longer holds what it held when the run began.
    """
    forms: dict[str, Form] = {}
    for path, names in _by_file(task.files).items():
        for name, form in _forms_of(Path(path), set(names)):
            if form_digest(form) != names[name]:
                raise InputError(f"{path} changed while it was mapped; run the same command again")
            forms[names[name]] = form
    if missing := sorted(digest for digest, *_ in task.files if digest not in forms):
        raise InputError(f"{dict((d, p) for d, p, _ in task.files)[missing[0]]} lacks an image that it held when the run began")
    found = match_pairs(forms, task.pairs, workers=task_threads())
    return str(MatchStore(Path(task.folder), KIND, read=False).write(found))


def _by_file(files: Sequence[tuple[str, str, str]]) -> dict[str, dict[str, str]]:
    """Digests by file and name in it."""
    found: dict[str, dict[str, str]] = {}
    for digest, path, name in files:
        found.setdefault(path, {})[name] = digest
    return found


def _forms_of(path: Path, names: set[str]) -> Iterator[tuple[str, Form]]:
    """The images `names` of one file, one after the other."""
    if holds_features(path):
        yield from ((name, loaded(raw).form) for name, raw in read_features(path) if name in names)
    else:
        yield from ((name, image.form) for name, image in load_images(path).items() if name in names)


def matched_in_blocks(
    forms: Mapping[str, Form],
    pairs: Sequence[tuple[str, str]],
    store: MatchStore,
    *,
    network: NetworkMatching | None = None,
    engine: Engine | None = None,
    files: Mapping[str, tuple[str, str]] | None = None,
    workers: int = 2,
    progress: Progress | None = None,
) -> dict[tuple[str, str], Matches]:
    """Matches of pairs of images by their names, of which the store's are not computed again.

    - `forms`: the images' features by name.
    - `pairs`: pairs of names.
    - `store`: where blocks are kept; it forgets nothing here.
    - `network`: matches in place of nearest neighbors, in this process; the store is then of its kind.
    - `engine`, `files`: where blocks are computed, and for that the file of each image with the image's name there. Without
      them blocks are computed in this process by `workers` threads.
    - `progress`: called with the number of pairs that are matched and of all.

    Raises InputError for an image that is not in `forms`, TaskError and EngineError as the engine does.
    """
    if unknown := sorted({name for pair in pairs for name in pair} - set(forms)):
        raise InputError(f"no features for {', '.join(unknown[:3])}")
    digests = {name: digest_in(forms, name) for name in sorted({name for pair in pairs for name in pair})}
    wanted = {_ordered(digests[a], digests[b]) for a, b in pairs}
    blocks = _planned(store, wanted)
    name_of = {digest: name for name, digest in digests.items()}
    total = len(wanted)
    left = sum(len(block) for block in blocks)

    def tell(more: int) -> None:
        if progress is not None:
            progress(total - left + more, total)

    if digests:
        store.note_names(digests)
    if blocks:
        store.save_plan(blocks)
        tell(0)
        if engine is None or files is None or network is not None:
            done = 0
            for block in blocks:
                names = sorted({name_of[digest] for pair in block for digest in pair})
                listed = [(name_of[a], name_of[b]) for a, b in block]
                so_far = partial(_more, tell, done)
                if network is None:
                    found = match_pairs({name: forms[name] for name in names}, listed, workers=workers, progress=so_far)
                else:
                    read = {name: network.images[name] for name in names}
                    found = match_pairs_by_network(read, listed, network.network, workers=workers, progress=so_far)
                store.write(dict(zip(block, found.values(), strict=True)))
                done += len(block)
        else:
            _compute(store, blocks, engine, {digest: files[name] for name, digest in digests.items()}, tell)
    # The plan of a later step stays: a run that is begun again comes to that step after this one.
    if all(pair in store for block in store.plan() for pair in block):
        store.finish()
    stored = store.matches({_ordered(digests[a], digests[b]) for a, b in pairs})
    return {(a, b): _between(stored, digests[a], digests[b]) for a, b in pairs}


def _more(tell: Callable[[int], None], before: int, done: int, _: int) -> None:
    """Tell the number of pairs that are done, `before` of them in earlier blocks."""
    tell(before + done)


def _ordered(a: str, b: str) -> DigestPair:
    """A pair of digests as it is matched: which image is left must not depend on names."""
    return (a, b) if a <= b else (b, a)


def _planned(store: MatchStore, wanted: set[DigestPair]) -> list[list[DigestPair]]:
    """Blocks to compute: those of an unfinished run as it divided them, and the rest of the wanted pairs divided anew."""
    kept = [block for block in store.plan() if wanted.issuperset(block)]
    rest = sorted(pair for pair in wanted - {pair for block in kept for pair in block} if pair not in store)
    return [block for block in kept if any(pair not in store for pair in block)] + [list(b.pairs) for b in in_blocks(rest)]


def _compute(
    store: MatchStore,
    blocks: Sequence[Sequence[DigestPair]],
    engine: Engine,
    files: Mapping[str, tuple[str, str]],
    tell: Callable[[int], None],
) -> None:
    """Compute blocks on an engine and enter them into the store as they come."""
    tasks = [
        BlockTask(
            folder=str(store.folder.resolve()),
            pairs=tuple(block),
            files=tuple((digest, *files[digest]) for digest in sorted({digest for pair in block for digest in pair})),
        )
        for block in blocks
    ]
    done = 0
    for index, path in engine.map(compute_block, tasks):
        store.adopt(Path(path))
        done += len(blocks[index])
        tell(done)


def _between(stored: Mapping[DigestPair, Matches], a: str, b: str) -> Matches:
    """The stored matches of two images, the one of digest `a` on the left."""
    found = stored[_ordered(a, b)]
    return found if (a, b) == _ordered(a, b) else turned(found)
