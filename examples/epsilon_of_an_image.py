"""
The epsilon of an image
=======================

Words are private one by one: the epsilon that is chosen is that of one feature. An image has hundreds, and their losses add up.
This page draws by how much, with the exact composition that the ledger uses.
"""

import tempfile

import matplotlib.pyplot as plt
import numpy as np

import veil

# %%
# One feature
# -----------
# Two of 16,384 words are sent. At a small epsilon the true word is rarely among them; from 10 on it mostly is.

for epsilon in (2, 5, 8, 10, 12):
    law = veil.SubsetMechanism(dictionary_size=16384, epsilon=epsilon, m=2)
    print(f"epsilon {epsilon:2}: the true word is sent with probability {float(law.truth):.3f}")

# %%
# Many features
# -------------
# The sum over all features holds with a delta of 0 (dashed). The exact composition, at a delta of one in a million, is smaller.

counts = np.array([1, 10, 30, 100, 300, 1000, 2000])
figure, axes = plt.subplots(figsize=(7, 4.5))
for color, epsilon in enumerate((3, 5, 10)):
    law = veil.SubsetMechanism(dictionary_size=16384, epsilon=epsilon, m=2)
    composed = [veil.composed_epsilon({law: int(count)}, 1e-6) for count in counts]
    axes.loglog(counts, composed, marker="o", color=f"C{color}", label=f"{epsilon} a feature")
    axes.loglog(counts, [veil.composed_epsilon({law: int(count)}) for count in counts], "--", color=f"C{color}", linewidth=0.8)
axes.set(xlabel="features that are sent", ylabel="epsilon of the image")
axes.legend(frameon=False)
axes.grid(alpha=0.3)
figure.tight_layout()
plt.show()

# %%
# What it means
# -------------
# An epsilon of 80 lets the odds of what the photograph showed change by a factor of e to the 80th. That is no promise about the
# image, though it is one about each feature. A budget refuses releases that would go beyond a number of yours:

device = veil.Device(tempfile.mkdtemp())
device.set_budget(veil.Budget(unit="image", epsilon=100.0, delta=1e-6))
print(device.budgets())
