"""
Attack your own upload
======================

`run_audit` runs attacks on releases of yours and measures what they recover, since you have the originals. Here: three attacks
on what a paper describes and on veil's default, of one photograph.
"""

import tempfile

import matplotlib.pyplot as plt

import veil

with veil.lund_door() as place:
    photograph = veil.read_picture(place.folder / place.held_out[0], camera=place.camera)
features = veil.extract(photograph, options=veil.SiftOptions(max_features=800))

# %%
# Two releases
# ------------
# A second release of a photograph is refused, as it gives more away than one. It is allowed here, in order to compare the two.

device = veil.Device(tempfile.mkdtemp())
as_in_the_paper = veil.Protection(descriptors=veil.HideInSubspaces(profile=veil.Profile.paper(m=4)))
releases = {
    "paper": device.release(features, as_in_the_paper).upload,
    "hardened": device.release(features, allow_second=True, purpose="map").upload,
}

# %%
# The attacks
# -----------
# Every attack that veil knows is in `ATTACKS`, with what it assumes.

wanted = ("lattice", "nearest, projected", "intersection")
attacks = [attack for attack in veil.ATTACKS if attack.name in wanted and attack.surface == "subspaces"]
for attack in attacks:
    print(f"{attack.name}: {attack.assumes}")

# %%
# What they recover
# -----------------
# A descriptor counts as recovered within 0.1 of the truth; descriptors have length 1.

options = veil.AuditOptions(features=60, seconds=8, attacks=attacks)
recovered = {}
for name, release in releases.items():
    audit = veil.run_audit({name: release}, originals={"photograph": features}, options=options)
    for finding in audit.findings:
        if finding.score is not None:
            recovered[name, finding.attack] = finding.score.recovered
            print(f"{name:9} {finding.attack:20} {finding.score.recovered}")

# %%
# The bars are 95 % intervals: an audit is a lower bound of what leaks, and of a sample besides.

figure, axes = plt.subplots(figsize=(7, 3.6))
for row, ((name, _), share) in enumerate(recovered.items()):
    middle = share.count / share.total
    axes.barh(row, middle, color="C3" if name == "paper" else "C0")
    axes.errorbar(middle, row, xerr=[[middle - share.low], [share.high - middle]], color="0.2", capsize=3)
axes.set_yticks(range(len(recovered)), [f"{name}: {attack}" for name, attack in recovered])
axes.set(xlim=(0, 1), xlabel="share of the descriptors that are recovered")
axes.invert_yaxis()
figure.tight_layout()
plt.show()

# %%
# The lattice attack needs nothing but the upload, and finds every descriptor of the paper's profile exactly. The default stops
# it. It does not stop an attacker who learns: :doc:`which form should I use? </docs/choose>` has all attacks on all forms.

assert recovered["paper", "lattice"].count == recovered["paper", "lattice"].total
assert recovered["hardened", "lattice"].count == 0
