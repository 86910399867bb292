"""Blocks of pairs of images: which pairs are matched together, in this process, on several, or on a cluster, and never twice.

A block is the unit of work and of storage (docs/theory/scale.md#blocks). Which pairs it holds depends on the list of pairs
alone, so that every computer that is given the list computes the same blocks. Each block is computed from files that it names
and becomes one file of a store (`veil.places.pairs.store`), so that it does not matter who computes it, nor how often a run is
killed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from veil.engine import Engine, task_threads
from veil.errors import InputError
from veil.forms import Form
from veil.matching import Matches, match_pairs
from veil.matching.pairs import match_pairs_by_network
from veil.places.pairs.images import ImageFiles, NetworkMatching, ReadForms, digest_in, form_digest
from veil.places.pairs.store import DigestPair, MatchStore, turned
from veil.progress import Progress

# Pairs of a block, at most and at least: seconds to a minute of one core, and few enough files.
MOST_PAIRS, LEAST_PAIRS = 1024, 24
# Number of blocks into which a long list is cut, about: work can be shared out, and a kill costs little.
BLOCKS = 64
# Images that a block reads, at most: 64 uploads of 1,000 features are some 60 MB.
MOST_IMAGES = 64
# How pairs are matched, as far as it changes matches: a store of another kind is not used.
KIND = "mutual nearest neighbors 1"


@dataclass(frozen=True, kw_only=True)
class PairBlock:
    """Pairs of images that are matched together: `pairs` of names, in the order in which they are stored."""

    pairs: tuple[tuple[str, str], ...]

    @property
    def images(self) -> tuple[str, ...]:
        """Names of the images that the block reads, sorted."""
        return tuple(sorted({name for pair in self.pairs for name in pair}))


def in_blocks(pairs: Sequence[tuple[str, str]]) -> list[PairBlock]:
    """Pairs divided into blocks whose pairs share images: no more than `MOST_PAIRS` pairs and `MOST_IMAGES` images each.

    Images are ordered by reverse Cuthill-McKee (Cuthill and McKee 1969), so that those that are paired stand together, and
    pairs by the order of their images. The list's own order changes nothing, and a pair that is listed twice is there once.
    """
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    listed = sorted(set(pairs))
    names = sorted({name for pair in listed for name in pair})
    if not listed:
        return []
    number = {name: row for row, name in enumerate(names)}
    rows, columns = np.array([(number[a], number[b]) for a, b in listed]).T
    graph = coo_matrix(
        (np.ones(2 * len(listed)), (np.r_[rows, columns], np.r_[columns, rows])), shape=(len(names),) * 2
    ).tocsr()
    place = np.empty(len(names), dtype=np.int64)
    place[reverse_cuthill_mckee(graph, symmetric_mode=True)] = np.arange(len(names))
    # Squares of the matrix of pairs, one after the other: within one, few images serve many pairs.
    side = MOST_IMAGES // 2
    low, high = np.minimum(place[rows], place[columns]), np.maximum(place[rows], place[columns])
    order = np.lexsort((high, low, high // side, low // side))
    most = int(np.clip(len(listed) // BLOCKS, LEAST_PAIRS, MOST_PAIRS))
    return [PairBlock(pairs=tuple(part)) for part in _cut([listed[row] for row in order], most)]


def _cut(pairs: Sequence[tuple[str, str]], most: int) -> list[list[tuple[str, str]]]:
    """Consecutive pairs, `most` of them or `MOST_IMAGES` images at a time."""
    parts: list[list[tuple[str, str]]] = [[]]
    images: set[str] = set()
    for pair in pairs:
        if len(parts[-1]) == most or len(images | {*pair}) > MOST_IMAGES:
            parts.append([])
            images = set()
        parts[-1].append(pair)
        images |= {*pair}
    return parts


@dataclass(frozen=True, kw_only=True)
class BlockTask:
    """A block for any process that reaches the files: the `folder` of the store, `pairs` of digests, and where images are.

    `files` gives the path of the file that holds each image, and the image's name there, by digest; `read` reads them.
    """

    folder: str
    pairs: tuple[DigestPair, ...]
    files: tuple[tuple[str, str, str], ...]
    read: ReadForms

    def __repr__(self) -> str:
        return f"block of {len(self.pairs)} pairs of {len(self.files)} images"


def compute_block(task: BlockTask) -> str:
    """Match the pairs of a block from files, write it, and return the path of its file.

    Raises InputError if a file no longer holds what it held when the run began.
    """
    forms: dict[str, Form] = {}
    for path, names in _by_file(task.files).items():
        for name, form in task.read(Path(path), set(names)):
            if form_digest(form) != names[name]:
                raise InputError(f"{path} changed while it was mapped; run the same command again")
            forms[names[name]] = form
    if missing := sorted(digest for digest, *_ in task.files if digest not in forms):
        raise InputError(f"{dict((d, p) for d, p, _ in task.files)[missing[0]]} lacks an image that it held when the run began")
    matches = match_pairs(forms, task.pairs, workers=task_threads())
    return str(MatchStore(Path(task.folder), KIND, read=False).write(matches))


def _by_file(files: Sequence[tuple[str, str, str]]) -> dict[str, dict[str, str]]:
    """Digests by file and name in it."""
    names_in: dict[str, dict[str, str]] = {}
    for digest, path, name in files:
        names_in.setdefault(path, {})[name] = digest
    return names_in


def matched_in_blocks(
    forms: Mapping[str, Form],
    pairs: Sequence[tuple[str, str]],
    store: MatchStore,
    *,
    network: NetworkMatching | None = None,
    engine: Engine | None = None,
    files: ImageFiles | None = None,
    workers: int = 2,
    progress: Progress | None = None,
) -> dict[tuple[str, str], Matches]:
    """Matches of pairs of images by their names, of which the store's are not computed again.

    - `forms`: the images' features by name.
    - `pairs`: pairs of names.
    - `store`: where blocks are kept; it forgets nothing here.
    - `network`: matches in place of nearest neighbors, in this process; the store is then of its kind.
    - `engine`, `files`: where blocks are computed, and the files from which it reads descriptors. Without them blocks are
      computed in this process by `workers` threads.
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
            _compute_here(store, blocks, forms, name_of, network, workers, tell)
        else:
            places = {digest: files.of[name] for digest, name in name_of.items()}
            _compute_on(engine, store, blocks, places, files.read, tell)
    # The plan of a later step stays: a run that is begun again comes to that step after this one.
    if all(pair in store for block in store.plan() for pair in block):
        store.finish()
    stored = store.matches({_ordered(digests[a], digests[b]) for a, b in pairs})
    return {(a, b): _between(stored, digests[a], digests[b]) for a, b in pairs}


def match_listed(
    forms: Mapping[str, Form],
    pairs: Sequence[tuple[str, str]],
    network: NetworkMatching | None,
    *,
    workers: int,
    progress: Progress | None = None,
) -> dict[tuple[str, str], Matches]:
    """Matches of pairs in this process, without a store: of nearest neighbors, or of the network; raises as either does."""
    if network is not None:
        return match_pairs_by_network(network.images, pairs, network.network, workers=workers, progress=progress)
    return match_pairs(forms, pairs, workers=workers, progress=progress)


def _ordered(a: str, b: str) -> DigestPair:
    """A pair of digests as it is matched: which image is left must not depend on names."""
    return (a, b) if a <= b else (b, a)


def _planned(store: MatchStore, wanted: set[DigestPair]) -> list[list[DigestPair]]:
    """Blocks to compute: those of an unfinished run as it divided them, and the rest of the wanted pairs divided anew."""
    kept = [block for block in store.plan() if wanted.issuperset(block)]
    rest = sorted(pair for pair in wanted - {pair for block in kept for pair in block} if pair not in store)
    return [block for block in kept if any(pair not in store for pair in block)] + [list(b.pairs) for b in in_blocks(rest)]


def _compute_here(
    store: MatchStore,
    blocks: Sequence[Sequence[DigestPair]],
    forms: Mapping[str, Form],
    name_of: Mapping[str, str],
    network: NetworkMatching | None,
    workers: int,
    tell: Callable[[int], None],
) -> None:
    """Compute blocks in this process; the descriptors of a block's images are in memory while it is computed."""
    done = 0
    for block in blocks:
        names = sorted({name_of[digest] for pair in block for digest in pair})
        listed = [(name_of[a], name_of[b]) for a, b in block]
        so_far = partial(_more, tell, done)
        if network is None:
            matches = match_listed({name: forms[name] for name in names}, listed, None, workers=workers, progress=so_far)
        else:
            held = replace(network, images={name: network.images[name] for name in names})
            matches = match_listed({}, listed, held, workers=workers, progress=so_far)
        store.write(dict(zip(block, matches.values(), strict=True)))
        done += len(block)


def _more(tell: Callable[[int], None], before: int, done: int, _: int) -> None:
    """Tell the number of pairs that are done, `before` of them in earlier blocks."""
    tell(before + done)


def _compute_on(
    engine: Engine,
    store: MatchStore,
    blocks: Sequence[Sequence[DigestPair]],
    places: Mapping[str, tuple[str, str]],
    read: ReadForms,
    tell: Callable[[int], None],
) -> None:
    """Compute blocks on an engine and enter them into the store as they come."""
    tasks = [
        BlockTask(
            folder=str(store.folder.resolve()),
            pairs=tuple(block),
            files=tuple((digest, *places[digest]) for digest in sorted({digest for pair in block for digest in pair})),
            read=read,
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
    matches = stored[_ordered(a, b)]
    return matches if (a, b) == _ordered(a, b) else turned(matches)
