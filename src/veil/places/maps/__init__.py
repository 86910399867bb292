"""Maps from matches: from positions through COLMAP, by clusters (`clusters/`), or from lines alone (`lines/`).

`loop` is the order of the steps of every map. Of maps of positions, `points` makes new ones, `known_poses` those of images
whose poses are known, `growth` adds images and `removal` takes images out; `images` and `options` are what they take. `guided`
matches pairs again and `verification` weighs them, `agreement` compares maps with them, `focal` tests focal lengths, and
`check` makes the numbers for and against a map, of which `uncertainty` is what noise alone does. `colmap/` runs COLMAP,
`scenes` holds what comes back. `contributions` weighs whose image it is.
"""

from veil.places.maps.colmap import StageLimits
from veil.places.maps.images import MapImage, NoMap
from veil.places.maps.options import MapOptions
from veil.places.maps.points import build_map

__all__ = ["MapImage", "MapOptions", "NoMap", "StageLimits", "build_map"]
