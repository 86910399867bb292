"""
Poses from tiles
================

The strongest answer to a curious server is to ask it nothing about the photograph. A public map is cut into tiles of equal
size; a device fetches some of them and localizes itself. Here all tiles are fetched, so that the server learns only that
somebody uses the map.
"""

import tempfile
from pathlib import Path

import numpy as np

import veil

# %%
# The operator
# ------------
# A map, cut into tiles. What a tile holds is public, raw descriptors among it: this is for places that may be known.

options = veil.SiftOptions(max_features=1000)
with veil.lund_door() as place:
    photographs = {name: veil.read_picture(place.folder / name, camera=place.camera) for name in sorted(place.poses)}
features = {name: veil.extract(photograph, options=options) for name, photograph in photographs.items()}
work = Path(tempfile.mkdtemp(prefix="veil-example-"))
built = veil.map_images({name: item for name, item in features.items() if name not in place.held_out})
built.map.write(work / "map")
made = veil.cut_map(work / "map", work / "tiles")
print(made.tiles, "tiles of", made.record_bytes, "bytes")

# %%
# The device
# ----------
# It knows about where it is, fetches, and finds its pose by itself. Nothing of the photograph leaves.

near = np.mean([image.cam_from_world.center for image in built.map.scene.images.values()], axis=0)
for name in place.held_out:
    answer = veil.localize_with_tiles(features[name], veil.open_tiles(work / "tiles"), near=near, within=1.0)
    assert isinstance(answer.pose, veil.Localization), answer.pose
    print(f"{name}: {answer.pose.inliers} inliers, camera center {np.round(answer.pose.center, 3)}")

# %%
# On a larger map a device fetches a few tiles, and how it does that decides what the server learns:
# :doc:`private tiles </docs/theory/tiles>`.

# sphinx_gallery_thumbnail_path = "docs/figures/city.png"
