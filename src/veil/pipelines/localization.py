"""One door for every query: words, subspaces, lines or raw features against any map."""

from __future__ import annotations

import time
from dataclasses import replace

from veil.codebooks.codebook import Codebook
from veil.features import Features
from veil.forms import Subsets
from veil.geometry.robust.grouped import GroupedOptions
from veil.localization.by_distance import Localization, LocalizeOptions, NoPose
from veil.localization.by_distance import localize as by_distance
from veil.localization.by_words import localize_words
from veil.localization.word_poses import WordOptions
from veil.pipelines.maps import Map
from veil.pipelines.uploads import Loaded, loaded
from veil.progress import Progress
from veil.wire.message import Message

# Of the processor, all threads together, for a search by words: ordinary ones take one or two, and only a longer one depends on
# how fast the machine is. What else it does, and the number of threads, change nothing.
WORD_SECONDS = 10.0


def localize(
    query: Message | Features | Loaded,
    where: Map,
    *,
    options: LocalizeOptions | None = None,
    word_options: WordOptions | None = None,
    codebook: Codebook | None = None,
    dictionary: Codebook | None = None,
    progress: Progress | None = None,
) -> Localization | NoPose:
    """Where `query` was taken on the map, or why there is no pose that chance cannot explain.

    A query in words is answered through the map's index, others by distance; positions may be hidden in lines. `options` are of
    queries by distance, `word_options` of those in words, which take at most ten seconds of the processor if not said.
    `codebook` is the one that the query was compressed with, `dictionary` that of its words (both: the bundled one). Raises
    SpaceError or InputError if query and map cannot be compared.
    """
    image = loaded(query)
    if not isinstance(image.form, Subsets):
        book = codebook or where.codebook_for(image.form)
        return by_distance(image.camera, image.seen, image.form, where.scene, codebook=book, options=options, progress=progress)
    index = where.index_for(image.form, dictionary=dictionary, progress=progress)
    word_options = word_options or WordOptions(search=GroupedOptions(max_seconds=WORD_SECONDS))
    begun = time.process_time()
    found = localize_words(image.camera, image.seen, image.form, where.scene, index, options=word_options, progress=progress)
    used, allowed = time.process_time() - begun, word_options.search.max_seconds
    if isinstance(found, NoPose) and allowed is not None and used > allowed:
        told = f"it took {used:.0f} s of the processor, and a search has {allowed:g} (--max-seconds)"
        return replace(found, reason=f"{found.reason}; {told}")
    return found
