"""
A private pose
==============

Nine photographs of a portal become a map. Another photograph is localized in it, as raw features and in two forms that may
leave a device: words, which leave by default, and subspaces, an obfuscation.
The map is public: whoever has it may know what the portal looks like. The query is not.
"""

import tempfile

import matplotlib.pyplot as plt
import numpy as np

import veil

# %%
# A map
# -----
# `extract` finds the features of a photograph, and `map_images` matches all pairs of photographs and reconstructs where the
# cameras stood. Features stay on the device, unless somebody decides that a place is public, as here. `measure_gravity` finds
# which way is down in each photograph, here by vertical edges: words are found on maps that know it.

options = veil.SiftOptions(max_features=1000)
with veil.lund_door() as place:
    photographs = {name: veil.read_picture(place.folder / name, camera=place.camera) for name in sorted(place.poses)}
    camera = ",".join([place.camera.model, *map(str, place.camera.params)])
    measured = veil.measure_gravity([place.folder / name for name in photographs], camera=camera)
features = {name: veil.extract(photograph, options=options) for name, photograph in photographs.items()}
gravity = {name: answer.direction for name, answer in measured.items()}
mapped = {name: item for name, item in features.items() if name not in place.held_out}
built = veil.map_images(mapped, gravity={name: gravity[name] for name in mapped})
print(len(built.map.scene.images), "photographs,", len(built.map.scene.points), "points")

# %%
# Three queries
# -------------
# A `Device` has a secret and a ledger, here in a new folder and usually in `$VEIL_HOME`. Its `release` protects the features,
# enters that in the ledger, and gives the bytes that may leave. A second, different release would give the photograph away
# where both meet, and is refused: here it is allowed, as the photograph is public.

device = veil.Device(tempfile.mkdtemp())
asked = place.held_out[1]
query = features[asked]
words = device.release(query, gravity=gravity[asked])
subspaces = device.release(query, veil.Protection(descriptors=veil.HideInSubspaces()), allow_second=True)
answers = {
    "raw features": veil.localize(query, built.map),
    "subspaces": veil.localize(veil.decode(subspaces.message), built.map),
    "words": veil.localize(veil.decode(words.message), built.map),
}
for form, answer in answers.items():
    print(f"{form:14} {answer.inliers:4} inliers, camera center {np.round(answer.center, 3)}")

# %%
# Whether there is a pose at all is decided against chance: a photograph of another place gets none, and a reason.

assert all(isinstance(answer, veil.Localization) for answer in answers.values())

# %%
# The map from above
# ------------------
# Gray: points and cameras of the map. The three poses of the query lie on each other.

figure, axes = plt.subplots(figsize=(7, 5))
points = built.map.scene.points
near = np.abs(points - np.median(points, axis=0)).max(axis=1) < 4 * np.median(np.abs(points - np.median(points, axis=0)))
axes.scatter(points[near, 0], points[near, 2], s=1, color="0.6")
cameras = np.array([image.cam_from_world.center for image in built.map.scene.images.values()])
axes.scatter(cameras[:, 0], cameras[:, 2], marker="^", color="0.3", label="mapped")
for (form, answer), (marker, size) in zip(answers.items(), (("o", 150), ("s", 70), ("x", 60)), strict=True):
    center = answer.center
    style = {"facecolors": "none", "edgecolors": "C0"} if marker != "x" else {"color": "C1"}
    axes.scatter(center[0], center[2], marker=marker, s=size, label=form, zorder=3, **style)
axes.set(aspect="equal", xlabel="x (units of the map)", ylabel="z (units of the map)")
axes.legend(loc="best", frameon=False)
figure.tight_layout()
plt.show()
