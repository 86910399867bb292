"""Structure-from-motion from lines alone (Geppert et al. 2020): tracks, a seed of four images, incremental mapping.

`problem` and `tracks` (`components`) are what it works on. `quad` makes a seed from four images (`planar_poses`), `incremental`
goes on from it by the loop of every map, `registration` adds one image, and `reconstruction` has the steps. `focal` measures
the focal lengths, `certainty` checks the map, and `stored_maps` turns it into a scene and back.
"""

from veil.places.maps.lines.incremental import LineMap, map_from_lines
from veil.places.maps.lines.problem import LineView
from veil.places.maps.lines.registration import LineMapOptions
from veil.places.maps.lines.tracks import MatchGraph, Tracks, build_tracks, match_graph
from veil.scene import LineMapCheck

__all__ = [
    "LineMap",
    "LineMapCheck",
    "LineMapOptions",
    "LineView",
    "MatchGraph",
    "Tracks",
    "build_tracks",
    "map_from_lines",
    "match_graph",
]
