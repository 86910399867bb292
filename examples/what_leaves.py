"""
What leaves the device
======================

One photograph, and what a message holds of it in each form: how many bytes, what stands in place of a descriptor, and what in
place of a position.
"""

import math
import tempfile

import matplotlib.pyplot as plt
import numpy as np

import veil

with veil.lund_door() as place:
    path = place.folder / place.held_out[0]
    picture = veil.read_picture(path)
    features = veil.extract(picture, camera=place.camera)

# %%
# Raw features stay here. A keypoint has 128 numbers, from which networks draw the photograph again.

print(len(features), "features;", "the first descriptor begins", features.descriptors[0, :12])

# %%
# Subspaces
# ---------
# Of 1,000 features at least 10 pixels apart, each descriptor becomes an affine subspace of four dimensions that holds it among
# decoys. Positions are as they were. Nothing is proved of it.

device = veil.Device(tempfile.mkdtemp())
subspaces = device.release(features, veil.Protection(descriptors=veil.HideInSubspaces())).upload
print(len(subspaces), "subspaces of dimension", subspaces.form.m, "in", subspaces.form.space)
print(subspaces.form.guarantee)

# %%
# Words
# -----
# Each descriptor becomes two words of a public dictionary, of which one may be the right one. The epsilon is of one feature.

choice = veil.Protection(descriptors=veil.HideInWords(epsilon=4, features_sent=4000))
released = device.release(features, choice, allow_second=True)
print("the first feature's words are", released.upload.form.ids[0])
print(released.upload.form.mechanism)
print(f"epsilon of all of them together: {math.ceil(released.image_epsilon)}, at delta 1e-6")

# %%
# Lines
# -----
# Either form may hide its positions: a random line through each keypoint is sent in place of it.

hidden = veil.Protection(descriptors=veil.HideInSubspaces(), lines=veil.HideInLines())
lines = device.release(features, hidden, allow_second=True).upload
print(len(lines), "lines; the first is", lines.lines.coefficients[0], "(n_x, n_y, c), with no point on it marked")

# %%
# The same photograph, as the device has it and as the server sees it.

camera = lines.camera
focal, center_x, center_y = camera.params[:3]
figure, (photograph, positions, line_axes) = plt.subplots(1, 3, figsize=(9, 4.6), sharex=True, sharey=True)
photograph.imshow(picture.rgb)
positions.scatter(*subspaces.keypoints.T, s=2, color="C0")
for n_x, n_y, c in lines.lines.coefficients[:150]:
    x, y = focal * -c * n_x + center_x, focal * -c * n_y + center_y
    line_axes.axline((x, y), (x - n_y, y + n_x), color="C0", linewidth=0.4)
for axes, title in ((photograph, "on the device"), (positions, "positions are sent"), (line_axes, "150 of the lines")):
    axes.set_title(title)
    axes.set(xlim=(0, camera.width_px), ylim=(camera.height_px, 0), aspect="equal", xticks=[], yticks=[])
figure.tight_layout()
plt.show()

# %%
# The number of bytes, and the same once more: a release is repeated, not drawn anew, so that two of them tell nothing more.

again = device.release(features, choice, allow_second=True)
print(len(released.message), "bytes; repeated byte for byte:", again.message == released.message)
assert again.message == released.message and np.isfinite(lines.lines.coefficients).all()
