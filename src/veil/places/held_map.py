"""A map as a server holds it: the scene, the folder that it came from, its indexes for queries, and its place on Earth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np

from veil.codebooks.codebook import Codebook
from veil.errors import InputError, Remedy
from veil.files.codebooks import bundled_codebook, known_codebook
from veil.files.maps.format import read_map, write_map
from veil.files.maps.indexes import read_point_index, read_vocabulary, write_point_index, write_vocabulary
from veil.forms import Flat, Form, Points, Subsets
from veil.geometry.georeference import Georeference, georeference
from veil.matching.inverted_index import NEAREST, InvertedIndex, index_map, with_mirror
from veil.matching.point_index import PointIndex, RankedImages
from veil.matching.point_indexing import index_points
from veil.one_line import line
from veil.places.pairs.choice import images_like
from veil.progress import Progress
from veil.scene import Scene
from veil.space import require_same

Queries = Literal["words", "distances", "both"]
# Least number of images of a map that is indexed for queries by distance when it is made: smaller ones gain no time by it.
INDEXED_FROM = 200


@dataclass(frozen=True, kw_only=True, eq=False)
class Map:
    """A map as a server holds it; `Map.read` and `Map.write` keep it in a folder.

    - `scene`: images with poses and released descriptors, and points in units of the map.
    - `folder`: where it was read from or written to; None: in memory only.

    Indexes for queries in words are found in the folder (`veil index`), or made once from the dictionary. The index for queries
    by distance is found there too, and otherwise made by `Map.index` alone: small maps need none.
    """

    scene: Scene
    folder: Path | None = None
    _indexes: dict[str, InvertedIndex] = field(default_factory=dict, init=False, repr=False)
    _point_indexes: list[PointIndex | None] = field(default_factory=list, init=False, repr=False)

    def __repr__(self) -> str:
        shown = {"images": len(self.scene.images), "points": len(self.scene.points), "form": type(self.form).__name__}
        return line(self, [*shown.items(), *([] if self.folder is None else [("folder", self.folder)])])

    @staticmethod
    def read(folder: Path | str) -> Map:
        """The map of a folder that `veil map` or `Map.write` wrote. Raises FileFormatError for a missing or damaged one."""
        return Map(scene=read_map(Path(folder)), folder=Path(folder))

    def write(self, folder: Path | str) -> Map:
        """Write the map to a new folder, at once or not at all, and return the map with this folder.

        Raises InputError if the folder already holds something, or cannot be written.
        """
        write_map(Path(folder), self.scene)
        return Map(scene=self.scene, folder=Path(folder))

    def index(
        self,
        queries: Queries | None = None,
        *,
        dictionary: Codebook | None = None,
        nearest_words: int = NEAREST,
        threads: int = 2,
        progress: Progress | None = None,
    ) -> dict[Queries, int]:
        """Index the map for queries and keep the indexes in its folder; return the number of entries of each, by queries.

        For "words" each descriptor of a public map is entered under several of its nearest words, as the map's own tracks show
        how far another view of a point falls (words.md#vocabulary-matching). For "distances" each point is entered under the
        word nearest to all its views, so that a query is matched with the images that it looks like (scale.md#queries).

        - `queries`: "words", "distances" or "both"; None: words where the map is public, distances where it is private or has
          200 images or more.
        - `dictionary`: the one whose words queries are released in; None: the bundled one of the map's descriptors.
        - `nearest_words`: number of nearest words that a descriptor is entered under, for queries in words.
        - `threads`: groups of points that are indexed at a time, for queries by distance.
        - `progress`: called with the number of images, then of points, that are entered, and of all.

        Raises InputError for a map that was not written, for a map of words, which needs no index, and for queries in words on
        a private map; SpaceError for a dictionary of other descriptors, RangeError if `nearest_words` is less than 1.
        """
        if self.folder is None:
            raise InputError("an index is kept in the folder of its map; write the map first")
        if isinstance(self.form, Subsets):
            raise InputError("a map of words needs no index; localize against it directly")
        asked = queries or self.usual_queries
        if asked != "distances" and not self.is_public:
            raise InputError("a private map serves no queries in words; index it for distances")
        book = dictionary or bundled_codebook(self.scene.space.descriptor)
        entries: dict[Queries, int] = {}
        if asked != "distances":
            made = index_map(self.scene, book, nearest=nearest_words, progress=progress)
            write_vocabulary(self.folder, made)
            self._indexes[made.dictionary] = made
            entries["words"] = len(made.point_rows)
        if asked != "words":
            points = make_point_index(self, book, threads=threads, progress=progress)
            write_point_index(self.folder, points)
            entries["distances"] = len(points.entries)
        return entries

    @property
    def usual_queries(self) -> Queries:
        """The queries that the map is indexed for where nothing else is asked for: "words", "distances" or "both"."""
        if not self.is_public:
            return "distances"
        return "words" if len(self.scene.images) < INDEXED_FROM else "both"

    @property
    def form(self) -> Form:
        """The form of the map's descriptors, as its first image has it."""
        return next(iter(self.scene.images.values())).form

    @property
    def is_public(self) -> bool:
        """Whether the map's descriptors are raw, so that its scene is public."""
        return self.scene.is_public

    def codebook_for(self, query: Form) -> Codebook | None:
        """The bundled codebook of a query's compressed descriptors; None for those that are not compressed.

        Raises InputError if it has to bring a public map into the query's space, and the query was privatized with another one;
        SpaceError if query and map are of other descriptors or normalizations.
        """
        if isinstance(query, Points | Subsets):
            return None
        if not self.is_public or query.space == self.scene.space:
            return known_codebook(query.space.descriptor, query.space.codebook)
        mine, theirs = query.space, self.scene.space
        if not mine.codebook or (mine.descriptor, mine.normalization) != (theirs.descriptor, theirs.normalization):
            require_same(mine, theirs)  # no codebook makes up for that
        book = bundled_codebook(query.space.descriptor)
        if book.digest != query.space.codebook:
            raise InputError(
                f"the query was privatized with codebook {query.space.codebook[:12]}, the bundled one is {book.digest[:12]}",
                remedy=Remedy("give", "localize.codebook"),
            )
        return book


def index_for(
    where: Map, query: Subsets, *, dictionary: Codebook | None = None, progress: Progress | None = None
) -> InvertedIndex:
    """The index that serves a query in words: the one in the folder, or one made now and kept in memory.

    It is made from `dictionary`, from the bundled one if None, or from a map of words itself; `progress` is called with the
    number of steps done and of all. Raises InputError where none of these is of the query's dictionary, or the map holds
    subspaces.
    """
    # A map of words has one index, whatever dictionary a query names: queries must not each leave an index behind.
    key = where.form.dictionary if isinstance(where.form, Subsets) else query.dictionary
    if key not in where._indexes:
        where._indexes[key] = _index(where, query, dictionary, progress)
    return where._indexes[key]


def point_index_of(where: Map) -> PointIndex | None:
    """The index for queries by distance, in the folder or made by `make_point_index`; None if there is none.

    Raises FileFormatError if the folder's is damaged or was made from another state of the map.
    """
    if not where._point_indexes:
        kept = None if where.folder is None else read_point_index(where.folder)
        if kept is not None and (kept.points != len(where.scene.points) or set(kept.image_names) != set(where.scene.images)):
            raise InputError(f"the index of {where.folder} is of another map", remedy=Remedy("renew", "index"))
        where._point_indexes.append(kept)
    return where._point_indexes[0]


def make_point_index(
    where: Map,
    codebook: Codebook | None = None,
    *,
    known: PointIndex | None = None,
    threads: int = 2,
    progress: Progress | None = None,
) -> PointIndex:
    """Make the index for queries by distance from the words of a public codebook, and use it from now on.

    - `codebook`: by default the bundled one of the map's descriptor. A public map is indexed in the space that hardened
      queries are sent in.
    - `known`: index of the map that this one grew from, whose unchanged points need not be compared with words again.
    - `threads`: groups of points that are indexed at a time.
    - `progress`: called with the number of points that are indexed and of all.

    Raises InputError for a map of words, SpaceError for a codebook that the map's descriptors do not fit.
    """
    if isinstance(where.form, Subsets):
        raise InputError("a map of words needs no index for queries by distance; localize against it directly")
    book = codebook or bundled_codebook(where.scene.space.descriptor)
    space = book.compression.hardened_space if where.is_public else where.scene.space
    words = book.compression.into_space(Points(vectors=book.vectors, space=book.raw_space), space).vectors
    forms: dict[str, tuple[Flat, np.ndarray]] = {}
    for name, image in where.scene.images.items():
        form = image.form
        assert not isinstance(form, Subsets)
        forms[name] = (book.compression.into_space(form, space) if isinstance(form, Points) else form, image.point_rows)
    made = index_points(forms, words, len(where.scene.points), known=known, threads=threads, progress=progress)
    where._point_indexes[:] = [made]
    return made


def ranked_images(where: Map, query: Form, codebook: Codebook | None = None, *, threads: int = 2) -> RankedImages | None:
    """The images that a query by distance looks like, the most similar first; None without an index for it.

    `codebook` is the one that brings public descriptors into the index's space; by default the bundled one.
    """
    index = None if isinstance(query, Subsets) else point_index_of(where)
    if index is None or isinstance(query, Subsets):
        return None
    return images_like(index, query, codebook, threads=threads)


def _index(where: Map, query: Subsets, dictionary: Codebook | None, progress: Progress | None) -> InvertedIndex:
    """The index of `index_for`, read from the folder or made."""
    if isinstance(where.form, Subsets):
        return _mirrorable(where, index_map(where.scene, None), dictionary)
    if not isinstance(where.form, Points):
        raise InputError(
            "the query is in words, the map in subspaces, and these do not compare; build the map from raw features"
        )
    kept = None if where.folder is None else read_vocabulary(where.folder, query.dictionary)
    if kept is not None:
        if len(kept.point_rows) and int(kept.point_rows.max()) >= len(where.scene.points):
            raise InputError(
                f"the index of {where.folder} names points that the map does not have", remedy=Remedy("renew", "index")
            )
        return _mirrorable(where, kept, dictionary)
    book = dictionary or bundled_codebook(where.scene.space.descriptor)
    if book.digest != query.dictionary:
        place = "the map" if where.folder is None else f"{where.folder}"
        raise InputError(
            f"the query's words are of dictionary {query.dictionary[:12]}, and {place} has no index for it",
            remedy=(Remedy("give", "localize.dictionary"), Remedy("make", "index")),
        )
    return index_map(where.scene, book, progress=progress)


def _mirrorable(where: Map, index: InvertedIndex, dictionary: Codebook | None) -> InvertedIndex:
    """The index with a way to mirror it, where its dictionary is the one given or a bundled one."""
    book = dictionary if dictionary is not None else known_codebook(where.scene.space.descriptor, index.dictionary)
    return index if book is None else with_mirror(index, where.scene, book)


def align_map(where: Map, positions: Mapping[str, np.ndarray], *, seed: int = 0) -> Georeference:
    """The similarity from a map's coordinates to east, north and up in meters, from positions of its cameras on WGS 84.

    Positions that disagree with the others are left out. Cameras along a line need a map with gravity.

    - `where`: the map.
    - `positions`: by image name, float64 (3,): latitude and longitude in degrees, and height above the ellipsoid in meters, as
      `read_positions` gives them. Names that the map does not have are passed over.
    - `seed`: of the search.

    `agreeing` of the result has an entry for each image with a position, sorted by name. Raises InputError for positions of no
    image of the map, too few positions, or positions that do not agree.
    """
    names = placed_names(where, positions)
    if not names:
        known = ", ".join(sorted(where.scene.images)[:3])
        raise InputError(f"the positions name none of the map's images, which are {known}; check them")
    return georeference(
        np.array([where.scene.images[name].cam_from_world.center for name in names]),
        np.array([positions[name] for name in names]),
        down=where.scene.measured_down,
        seed=seed,
    )


def placed_names(where: Map, positions: Mapping[str, np.ndarray]) -> list[str]:
    """Names of the images of the map `where` that `positions` has an entry of, sorted."""
    return sorted(set(positions) & set(where.scene.images))
