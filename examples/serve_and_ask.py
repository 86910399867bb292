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

# %%
# The server
# ----------
# All that it keeps lies in one folder. A token for the device is made there; then `veil serve` answers.

work = Path(tempfile.mkdtemp(prefix="veil-example-"))
folder, token = work / "store", work / "phone.token"
veil_command = [sys.executable, "-m", "veil.cli"]
scopes = ["--scopes", "admin", "localize", "contribute"]
subprocess.run([*veil_command, "serve", "token", str(folder), "--name", "my phone", *scopes, "-o", str(token)], check=True)
server = subprocess.Popen([*veil_command, "serve", str(folder), "--port", "0"], stdout=subprocess.PIPE, text=True)
# Once it answers, it prints where: port 0 is one that is free.
line = next(line for line in server.stdout if line.startswith("veil serves"))
address = re.search(r"http://\S+", line)[0]

# %%
# The device
# ----------
# `Client` releases under the device's secret, enters the release in the ledger, and sends the message. What is contributed to a
# map leaves in subspaces, and so does a query of such a map. They are an obfuscation without proof, and a query asks for them.

with veil.lund_door() as place:
    names = sorted(place.poses)[:5]
    photographs = {name: veil.read_picture(place.folder / name, camera=place.camera) for name in names}
options = veil.SiftOptions(max_features=1000)
features = {name: veil.extract(photograph, options=options) for name, photograph in photographs.items()}
*contributed, asked = names
with veil.Client(address, token.read_text().strip(), veil.Device(work / "phone")) as client:
    door = client.create_map("door")
    accepted = [client.contribute(door.id, features[name], name=name) for name in contributed]
    client.wait(accepted[-1].job)
    for item in client.contributions():
        print(item.contribution, item.state)

    # %%
    # A pose
    # ------
    answer = client.localize(door.id, features[asked], veil.Protection(descriptors=veil.HideInSubspaces()), name=asked)
    print(answer)

    # %%
    # A deletion
    # ----------
    # `delete` returns when the contribution is out of the map, with a receipt that is in the server's chain of receipts.
    receipt = client.delete(accepted[0].contribution)
    print(receipt.content)
    assert not isinstance(answer, veil.NoPose)

server.terminate()
server.wait()

# sphinx_gallery_thumbnail_path = "docs/figures/browser.png"
