"""
Serve and ask
=============

A server and a device: the device contributes photographs as messages, is localized, and takes a contribution back. The server
never has a photograph, and what it keeps of a deleted contribution is a receipt.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

import veil
from veil.files.examples import lund_door
from veil.server.policy import MapPolicy
from veil.server.service import Service

# %%
# The server
# ----------
# All that it keeps lies in one folder. An administrator makes a map and a token there, which the command line and the routes do
# as well; then `veil serve` answers.

folder = Path(tempfile.mkdtemp(prefix="veil-example-")) / "store"
service = Service(folder)
door = service.records.make("door", MapPolicy())
_, secret = service.tokens.make("my phone", ["localize", "contribute"], maps=[door.id])
service.close()
server = subprocess.Popen(
    [sys.executable, "-m", "veil.cli", "serve", str(folder), "--port", "0"], stdout=subprocess.PIPE, text=True
)
# Once it answers, it prints where: port 0 is one that is free.
line = next(line for line in server.stdout if line.startswith("veil serves"))
address = re.search(r"http://\S+", line)[0]

# %%
# The device
# ----------
# `Client` releases under the device's secret, enters the release in the ledger, and sends the message.

with lund_door() as place:
    names = sorted(place.poses)[:5]
    photographs = {name: veil.read_picture(place.folder / name, camera=place.camera) for name in names}
options = veil.SiftOptions(max_features=1000)
features = {name: veil.extract(photograph, options=options) for name, photograph in photographs.items()}
*contributed, asked = names
with veil.Client(address, secret, veil.Device(tempfile.mkdtemp())) as client:
    accepted = [client.contribute(door.id, features[name], name=name) for name in contributed]
    client.wait(accepted[-1].job)
    for item in client.contributions():
        print(item.contribution, item.state)

    # %%
    # A pose
    # ------
    answer = client.localize(door.id, features[asked], name=asked)
    print(f"{answer.inliers} inliers, camera center {answer.cam_from_world.center}")

    # %%
    # A deletion
    # ----------
    # `delete` returns when the contribution is out of the map, with a receipt that is in the server's chain of receipts.
    receipt = client.delete(accepted[0].contribution)
    print(receipt.content)
    assert not isinstance(answer, veil.NoPose)

server.terminate()
server.wait()

# sphinx_gallery_thumbnail_path = "docs/figures/serve.png"
