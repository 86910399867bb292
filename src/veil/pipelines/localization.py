"""Localization of every kind of query: words, subspaces, lines or raw features against any map."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from veil.codebooks.codebook import Codebook
from veil.errors import InputError, Remedy
from veil.features import Features
from veil.forms import Lines, Subsets
from veil.geometry.robust.grouped import GroupedOptions
from veil.matching.lightglue import LightGlue
from veil.matching.placed_points import placed
from veil.pipelines.maps import Map
from veil.pipelines.uploads import loaded
from veil.places.pairs.images import LoadedImage
from veil.places.poses.by_distance import localize as by_distance
from veil.places.poses.by_words import localize_words
from veil.places.poses.judge import Localization, NoPose
from veil.places.poses.options import LocalizeOptions, PositionOptions, WordOptions
from veil.places.poses.upright import localize_positions
from veil.progress import Progress
from veil.wire.message import Message

# Seconds of processor time, all threads together, for a search by words. Ordinary searches take one or two; only a longer one
# depends on how fast the machine is. Other load of the machine, and the number of threads, change nothing.
WORD_SECONDS = 10.0
# The same for positions alone, which need more samples.
POSITION_SECONDS = 60.0


def localize(
    query: Message | Features | LoadedImage,
    where: Map,
    *,
    options: LocalizeOptions | None = None,
    word_options: WordOptions | None = None,
    position_options: PositionOptions | None = None,
    codebook: Codebook | None = None,
    dictionary: Codebook | None = None,
    near: Sequence[str] | None = None,
    search: Literal["index", "all"] = "index",
    network: LightGlue | None = None,
    progress: Progress | None = None,
) -> Localization | NoPose:
    """Estimate the pose of a query on a map, or say why no pose is better than chance (docs/theory/localization.md).

    A query in words is answered through the map's index (Pittaluga and Zhuang 2023, Sec. 6.2; docs/theory/words.md), others by
    distances of descriptors (Dusmanu et al. 2021; docs/theory/distances.md). Positions may be hidden in lines.

    - `query`: a message, or raw features (positions in pixels of the query's image).
    - `where`: the map.
    - `options`: of queries that are matched by distance.
    - `word_options`: of queries in words; by default the search takes at most ten seconds of processor time.
    - `position_options`: of queries whose words say nothing (epsilon 0): positions alone, which need `near` and gravity
      (docs/theory/words_upright.md#positions-alone); by default the search takes at most a minute of processor time.
    - `codebook`: the one that a hardened query was compressed with; by default the bundled one, if the query names it.
    - `dictionary`: the one of a query's words, where the map has no index for it; by default the bundled one.
    - `near`: names of the map's images that a query in words is known to be near (`veil.scene.Scene.nearest`), in place of
      those that look like it.
    - `search`: a query by distance is matched with the images that it looks like where the map has an index ("index";
      docs/theory/scale.md#queries), and its pose compared with places that look the same, or with "all".
    - `network`: matches in place of nearest neighbors (`veil.LightGlue`), for raw features on a public map alone
      (docs/theory/learned_matching.md).
    - `progress`: called with the number of steps done and of all.

    Raises SpaceError or InputError if query and map cannot be compared, words with lines lack gravity, positions alone lack
    gravity or `near`, or a network is to match what is protected.
    """
    image = loaded(query)
    if network is not None:
        placed(image.form, image.positions, image.camera, what="the query")
    if not isinstance(image.form, Subsets):
        book = codebook or where.codebook_for(image.form)
        options = options or LocalizeOptions()
        ranked = where.ranked_images(image.form, codebook, threads=options.workers) if search == "index" else None
        return by_distance(
            image.camera,
            image.positions,
            image.form,
            where.scene,
            codebook=book,
            ranked=ranked,
            network=network,
            options=options,
            progress=progress,
        )
    if image.form.mechanism.epsilon == 0:
        if isinstance(image.positions, Lines):
            raise InputError("the query holds neither positions nor descriptors: its words are random and its positions hidden")
        return localize_positions(
            image.camera,
            image.positions,
            where.scene,
            gravity=image.gravity,
            near=near or (),
            options=position_options or PositionOptions(max_seconds=POSITION_SECONDS),
            progress=progress,
        )
    index = where.index_for(image.form, dictionary=dictionary, progress=progress)
    word_options = word_options or WordOptions(search=GroupedOptions(max_seconds=WORD_SECONDS))
    begun = time.process_time()
    answer = localize_words(
        image.camera,
        image.positions,
        image.form,
        where.scene,
        index,
        gravity=image.gravity,
        near=near,
        options=word_options,
        progress=progress,
    )
    used, allowed = time.process_time() - begun, word_options.search.max_seconds
    if isinstance(answer, NoPose) and allowed is not None and used > allowed:
        limit = f"it took {used:.0f} s of the processor, and a search has {allowed:g}"
        return replace(answer, reason=f"{answer.reason}; {limit}", remedy=(Remedy("raise", "GroupedOptions.max_seconds"),))
    return answer
