"""Structure-from-motion from lines alone (Geppert et al. 2020): tracks, seed, incremental mapping. In Python only so far."""

from veil.mapping.lines.incremental import LineMap, LineMapOptions, NoLineMap, map_from_lines
from veil.mapping.lines.tracks import Tracks, build_tracks
from veil.mapping.lines.world import LineView

__all__ = ["LineMap", "LineMapOptions", "LineView", "NoLineMap", "Tracks", "build_tracks", "map_from_lines"]
