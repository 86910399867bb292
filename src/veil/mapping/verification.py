"""Verification of the pairs of images that a map of positions is built from, by COLMAP and by evidence against chance."""

from __future__ import annotations

import math
from collections.abc import Mapping, Set
from pathlib import Path
from typing import Any

import numpy as np

from veil.mapping.agreement import Pair
from veil.mapping.colmap import Colmap, Stopped
from veil.mapping.database import keep_geometries, read_geometries, write_database
from veil.mapping.images import MapImage
from veil.mapping.options import LEAST_INLIERS, MapOptions, first_ratios, verification_settings
from veil.mapping.verified import VerifiedPair, match_again, unsupported, verified_pairs, with_dropped
from veil.matching.neighbors import Matches

# Verifying more pairs than this may take longer, in proportion, before it counts as hanging.
PAIRS_AT_ONCE = 50


class Verification:
    """Pairs of images verified so far, and COLMAP's database of them.

    `pairs` are the verified pairs by their names, the evidence that a map is judged by; COLMAP's own geometries may hold more
    matches. `image_ids` are COLMAP's, `constant_cameras` its ids of the cameras whose focal length is known.
    """

    def __init__(self, images: Mapping[str, MapImage], options: MapOptions, workdir: Path, colmap: Colmap) -> None:
        self._images, self._options, self._workdir, self._colmap = images, options, workdir, colmap
        self._matches: Mapping[Pair, Matches] = {}
        self._ratios: tuple[float, ...] = ()
        self._dropped: Mapping[Pair, Matches] = {}
        self._geometries: dict[Pair, Any] = {}
        self._tests = self._rounds = 0
        self._restored = False
        self.pairs: dict[Pair, VerifiedPair] = {}
        self.image_ids: dict[str, int] = {}
        self.constant_cameras: set[int] = set()

    @property
    def database(self) -> Path:
        """Path of COLMAP's database with the verified pairs."""
        return self._workdir / "database.db"

    def run(self, matches: Mapping[Pair, Matches]) -> Stopped | None:
        """Write the pairs that chance does not explain to the database; returns what stopped COLMAP, if anything did.

        Wrong pairs take COLMAP longest, the longer the more matches they have: the looser of two ratios is for pairs of images
        that the stricter one leaves with few inliers.
        """
        self._matches, self._ratios = matches, first_ratios(self._images, list(matches), self._options)
        for ratio in self._ratios or (math.inf,):
            candidates = self._within(ratio)
            tried = {pair: candidates[pair] for pair in unsupported(self.pairs, candidates)}
            if self._rounds and not tried:
                break
            if (stopped := self._verify(tried)) is not None:
                return stopped
        if self._ratios:
            self._dropped = {pair: found.take(found.ratios > self._ratios[0]) for pair, found in matches.items()}
            match_again(self._images, self.pairs, self._geometries, self._ratios[-1])
        self._keep()
        return None

    def widen(self, names: Set[str], missing: Set[str]) -> bool:
        """Verify more pairs of the images `missing` by the looser ratio, and restore matches that the ratio dropped.

        `missing` are the images, of `names`, that a model lacks. Returns whether this may place one of them: whether it added
        anything, and a verified pair joins one of them to another image.
        """
        if not self._ratios:
            return False
        loose, before = self._within(self._ratios[-1]), len(self.pairs)
        known = {frozenset(pair) for pair in self.pairs}
        tried = {
            pair: found
            for pair, found in loose.items()
            if {*pair} <= names and {*pair} & missing and frozenset(pair) not in known
        }
        if len(self._ratios) > 1 and tried and self._verify(tried) is None:
            self._keep()
        restored = self.restore_dropped()
        rest = names - missing
        joined = any({*pair} <= names and {*pair} & missing and ({*pair} & rest or not rest) for pair in self.pairs)
        return joined and (restored or len(self.pairs) > before)

    def forget(self, pairs: Set[Pair]) -> None:
        """Take verified pairs back, also from the database, because something else speaks against them."""
        if pairs:
            self.pairs = {pair: found for pair, found in self.pairs.items() if pair not in pairs}
            self._geometries = {pair: found for pair, found in self._geometries.items() if pair not in pairs}
            self._keep()

    def restore_dropped(self) -> bool:
        """Add matches that the ratio dropped and the pairs' geometries explain to the database; returns whether any exist."""
        if not self._restored:
            more = with_dropped(self._images, self._geometries, self._dropped)
            for pair, matches in more.items():
                self._geometries[pair].inlier_matches = matches.astype(np.uint32)
            self._restored = bool(more)
            if more:
                self._keep()
        return self._restored

    def _within(self, ratio: float) -> dict[Pair, Matches]:
        """Matches that pass a ratio, of the pairs with `LEAST_INLIERS` of them or more."""
        kept = {pair: found.take(found.ratios <= ratio) for pair, found in self._matches.items()}
        return {pair: found for pair, found in kept.items() if len(found) >= LEAST_INLIERS}

    def _verify(self, tried: Mapping[Pair, Matches]) -> Stopped | None:
        """Verify the pairs `tried` in a new database, and keep those that chance does not explain, with COLMAP's geometries."""
        self._rounds += 1
        self._tests += len(tried)
        path = self.database if self._rounds == 1 else self._workdir / f"database-{self._rounds}.db"
        self.image_ids, self.constant_cameras = write_database(path, self._images, tried)
        settings = verification_settings(self._images, again=self._rounds > 1)
        request = {"do": "verify", "database": str(path), "seed": self._options.seed, "options": settings}
        # All pairs are verified in one stage without a sign of progress.
        answer = self._colmap.run(request, work=max(1.0, len(tried) / PAIRS_AT_ONCE))
        if isinstance(answer, Stopped):
            return answer
        geometries = read_geometries(path, self.image_ids)
        found = verified_pairs(self._images, tried, geometries, tests=self._tests)
        self.pairs |= found
        self._geometries |= {pair: geometries[pair] for pair in found}
        return None

    def _keep(self) -> None:
        keep_geometries(self.database, self.image_ids, self._geometries)
