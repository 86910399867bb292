"""A device and a server: images are released under the device's secret, sent, localized, deleted, and deletions verified."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, overload
from urllib.parse import quote

import numpy as np
from jaxtyping import Float64

from veil.client.answers import Accepted, JobStatus, RemoteMap, RemotePose, accepted_of, job_of, map_of, pose_of
from veil.client.connection import Connection, ServerError, Unreachable
from veil.client.tile_access import serves_tiles
from veil.client.tile_use import TileUse
from veil.client.usual import protection_for
from veil.device.device import Device, require_one_gravity
from veil.device.protection import Protection, Purpose, usual_protection
from veil.device.tiles import TileAnswer
from veil.errors import InputError, WireError
from veil.features import Features
from veil.files.device.outbox import Outbox, Sending
from veil.places.poses.answer import NoPose
from veil.tiles.fetching import TileFetcher
from veil.wire.names import MAP_ID, chosen
from veil.wire.receipts import Receipt, receipt_of, require_in_chain

OnStatus = Callable[[JobStatus], None]
Link = tuple[int, str, str]


class Client:
    """A device that uses one server.

    - `url`, `token`: of the server, see `veil.client.connection.Connection`.
    - `device`: holds the secret and the ledger; None: `Device()`. Only messages that it released are sent, so that an image
      that is sent again is sent as the same bytes.
    - `timeout_s`, `allow_plain`: of the connection.

    `notes` are sentences that the user should read, of what was released, each once. Messages wait in the device's folder
    until the server has acknowledged them. Raises InputError for an address or a token that cannot be one, and what `Device`
    raises.
    """

    def __init__(
        self, url: str, token: str, device: Device | None = None, *, timeout_s: float = 60.0, allow_plain: bool = False
    ) -> None:
        self._connection = Connection(url, token, timeout_s=timeout_s, allow_plain=allow_plain)
        self.device = device or Device()
        self.outbox = Outbox(self.device.ledger.path.parent)
        self.notes: dict[str, None] = {}
        self._fetchers: dict[tuple[object, ...], TileFetcher] = {}
        self._tiled: dict[str, bool] = {}
        self._known: dict[str, RemoteMap] = {}

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def maps(self) -> list[RemoteMap]:
        """The maps that the token may use."""
        return [map_of(value) for value in _list(self._connection.get("v1", "maps"), "maps")]

    def map(self, map_id: str) -> RemoteMap:
        """One map, by its id, or by its name if no other map has it. Raises ServerError if there is none."""
        try:
            return chosen(self.maps(), map_id)
        except InputError as error:
            raise ServerError(error.cause, status=404, kind="not-found", remedy=error.remedy) from None

    def id_of(self, name: str) -> str:
        """The id of a map, by its name as in `map`; an id needs no answer of the server, which may be away."""
        return name if MAP_ID.fullmatch(name) else self.map(name).id

    def create_map(self, name: str, policy: Mapping[str, Any] | None = None) -> RemoteMap:
        """Make an empty map, for which the token must be an administrator's.

        - `name`: one that no other map of the server has.
        - `policy`: what it accepts (docs/reference/service.md#what-a-map-accepts); what is left out is the server's default.

        Raises ServerError if the server refuses, with the nearest name for a field of the policy that there is not.
        """
        return map_of(self._connection.post("v1", "maps", value={"name": name, "policy": dict(policy or {})}))

    def delete_map(self, map_id: str) -> list[Receipt]:
        """Delete a map, by its id or name, with all contributions to it, and return their verified receipts.

        The token must be an administrator's. Raises ServerError if the server refuses, WireError for a receipt that does not
        verify.
        """
        receipts = [receipt_of(value) for value in _list(self._connection.delete("v1", "maps", self.id_of(map_id)), "receipts")]
        links = self._chain() if receipts else []
        for receipt in receipts:
            self._verified(receipt, links)
        return receipts

    def contribute(
        self,
        map_id: str,
        features: Features,
        protection: Protection | None = None,
        *,
        gravity: Float64[np.ndarray, "3"] | None = None,
        name: str = "",
        allow_second: bool = False,
    ) -> Accepted | None:
        """Release an image and give it to a map; None if the server cannot be reached, and the message waits for `send`.

        - `map_id`: id of the map, or its name, which the server must be there to look up.
        - `protection`: by default subspaces, an obfuscation, in lines where the map is known to ask for these.
        - `features`, `gravity`, `name`, `allow_second`: as for `Device.release`; the name stays here.

        Raises ServerError if the server refuses, and what `Device.release` raises.
        """
        where = self.id_of(map_id)
        if protection is None:
            try:
                protection = self._usual(self._known.get(where) or self.map(where), "map", features, gravity)
            except Unreachable:
                protection = usual_protection("map", features, gravity=gravity)
        else:
            require_one_gravity(gravity)
        message = self._released(features, protection, "map", name, allow_second)
        sending = Sending(server=self._connection.url, map_id=where, name=name, message_sha256=_digest(message))
        self.outbox.put(sending, message)
        try:
            return self._send(sending, message)
        except Unreachable:
            return None

    def send(self) -> list[Accepted]:
        """Send what waits for this server. Raises Unreachable if it still does not answer; the rest goes on waiting."""
        return [
            self._send(sending, message)
            for sending, message in list(self.outbox.waiting())
            if sending.server == self._connection.url
        ]

    @overload
    def localize(
        self,
        map_id: str,
        features: Features,
        protection: Protection,
        *,
        name: str = "",
        allow_second: bool = False,
    ) -> RemotePose | NoPose: ...

    @overload
    def localize(self, map_id: str, features: Features, *, tiles: TileUse) -> TileAnswer: ...

    @overload
    def localize(
        self,
        map_id: str,
        features: Features,
        protection: Protection | None = None,
        *,
        gravity: Float64[np.ndarray, "3"] | None = None,
        name: str = "",
        allow_second: bool = False,
    ) -> RemotePose | NoPose | TileAnswer: ...

    def localize(
        self,
        map_id: str,
        features: Features,
        protection: Protection | None = None,
        *,
        gravity: Float64[np.ndarray, "3"] | None = None,
        name: str = "",
        allow_second: bool = False,
        tiles: TileUse | None = None,
    ) -> RemotePose | NoPose | TileAnswer:
        """Localize an image in the way that gives least away, or in the one that is asked for.

        `map_id` is the id of the map, or its name. Where the server has tiles of the map's name (`veil serve tiles`), or with
        `tiles`, nothing is released: tiles are fetched without telling which, and the pose is found here
        (docs/theory/tiles.md). No token is sent for them, and the ledger is not concerned.

        Otherwise the image is released, by default in words with `gravity` (`usual_protection`). The server keeps nothing of
        it, and the ledger here notes the release.

        Raises Unreachable, ServerError if the server refuses, and what `Device.release`, or `open_tiles` and
        `localize_with_tiles`, raise.
        """
        if tiles is not None:
            return self._from_tiles(map_id, features, tiles)
        if protection is None:
            remote = self._known.get(map_id) or self.map(map_id)
            if self._serves_tiles(remote.name):
                self._note(remote)
                return self._from_tiles(remote.name, features, TileUse())
            where, protection = remote.id, self._usual(remote, "localize", features, gravity)
        else:
            require_one_gravity(gravity)
            where = self.id_of(map_id)
        message = self._released(features, protection, "localize", name, allow_second)
        return pose_of(self._connection.post_message("v1", "maps", where, "localize", message=message))

    def _usual(
        self, remote: RemoteMap, purpose: Purpose, features: Features, gravity: Float64[np.ndarray, "3"] | None
    ) -> Protection:
        """The usual protection for a map, which is asked for again until it takes one."""
        protection = protection_for(remote, purpose, features, gravity)
        self._note(remote)
        return protection

    def _note(self, remote: RemoteMap) -> None:
        """Keep what a map takes, by its id and name, so that it is asked once."""
        self._known |= {remote.id: remote, remote.name: remote}

    def _serves_tiles(self, name: str) -> bool:
        """Whether the server has tiles of this name, which is asked once."""
        if name not in self._tiled:
            self._tiled[name] = serves_tiles(self._tiles_at(name))
        return self._tiled[name]

    def _tiles_at(self, name: str) -> str:
        return f"{self._connection.url}/v1/tiles/{quote(name, safe='')}"

    def _from_tiles(self, name: str, features: Features, tiles: TileUse) -> TileAnswer:
        """The answer to an image in the tiles of this name, whose fetcher is kept."""
        key = (name, tiles.also, tiles.exit, tiles.version)
        if key not in self._fetchers:
            self._fetchers[key] = tiles.opened(self._tiles_at(name))
        return tiles.localized(features, self._fetchers[key])

    def contributions(self) -> list[Accepted]:
        """Contributions of this token that the server holds."""
        return [accepted_of(value) for value in _list(self._connection.get("v1", "contributions"), "contributions")]

    def status(self, contribution: str) -> Accepted:
        """One contribution, as the server has it. Raises ServerError if it has none."""
        return accepted_of(self._connection.get("v1", "contributions", contribution))

    def job(self, job: str) -> JobStatus:
        """How far a job is."""
        return job_of(self._connection.get("v1", "jobs", job))

    def wait(self, job: str, *, on_status: OnStatus = lambda status: None, every_s: float = 0.5) -> JobStatus:
        """The end of a job; `on_status` is called with what it does meanwhile."""
        while True:
            status = self.job(job)
            on_status(status)
            if status.has_ended:
                return status
            time.sleep(every_s)

    def delete(self, contribution: str, *, on_status: OnStatus = lambda status: None) -> Receipt:
        """Delete a contribution, wait until it is out of the map, and return the verified receipt.

        Raises ServerError if the server refuses or fails, WireError for a receipt that does not verify.
        """
        answer = self._connection.delete("v1", "contributions", contribution)
        if isinstance(answer, dict) and answer.get("receipt") is None and isinstance(answer.get("job"), str):
            self.wait(answer["job"], on_status=on_status)
            answer = {"receipt": self._connection.get("v1", "contributions", contribution, "receipt")}
        receipt = receipt_of(answer.get("receipt") if isinstance(answer, dict) else None)
        if receipt.content.get("contribution") != contribution:
            raise WireError("the receipt is of another contribution; ask the server's administrator, and keep this receipt")
        self._verified(receipt, self._chain())
        return receipt

    def _verified(self, receipt: Receipt, links: list[Link]) -> None:
        """Check a receipt against the chain, and forget here what it is of. Raises WireError as `verify` does."""
        self._require_in(links, receipt)
        for sending in self.outbox.sent():
            if (sending.server, sending.contribution) == (self._connection.url, receipt.content.get("contribution")):
                self.outbox.forget(sending)
        # A message whose acknowledgement was lost still waits; sent again, it would undo the deletion.
        for sending, _ in list(self.outbox.waiting()):
            if (sending.server, sending.message_sha256) == (self._connection.url, receipt.content.get("message_sha256")):
                self.outbox.drop(sending)

    def verify(self, receipt: Receipt) -> None:
        """Check a receipt against the server's chain of receipts, and this chain against what was noted of it before.

        What it proves: the server said so, and has not taken it back. What it does not: that no copy was made. Raises WireError
        for a receipt that is not in the chain, of other bytes than were sent, or where the chain was rewritten.
        """
        self._require_in(self._chain(), receipt)

    def _chain(self) -> list[Link]:
        """The server's chain of receipts."""
        links: list[Link] = []
        while page := _list(self._connection.get("v1", "receipts", after=len(links)), "links"):
            links += [_link(value) for value in page]
        return links

    def _require_in(self, links: list[Link], receipt: Receipt) -> None:
        """Raise WireError as `verify` does, for a receipt and a chain."""
        noted = [item for item in self.outbox.sent() if item.server == self._connection.url]
        mine = [item for item in noted if item.contribution == receipt.content.get("contribution")]
        for item in mine:
            if item.message_sha256 != receipt.content.get("message_sha256"):
                raise WireError(
                    "the receipt names other bytes than those that were sent; keep this receipt, and ask the "
                    "server's administrator"
                )
        heads = {item.receipts_head for item in noted} or {""}
        for head in heads:
            require_in_chain(receipt, links, head or None)

    def _released(self, features: Features, protection: Protection, purpose: Purpose, name: str, allow_second: bool) -> bytes:
        """The message of an image, which the ledger then knows."""
        released = self.device.release(features, protection, purpose=purpose, name=name, allow_second=allow_second)
        self.notes |= dict.fromkeys(released.notes)
        return released.message

    def _send(self, sending: Sending, message: bytes) -> Accepted:
        """Send one message of the outbox, and note that it was acknowledged, or drop it if it was refused for good."""
        try:
            answer = self._connection.post_message("v1", "maps", sending.map_id, "contributions", message=message)
        except ServerError as error:
            if error.status in (400, 404, 413, 415, 422):
                self.outbox.drop(sending)
            raise
        accepted = accepted_of(answer)
        if accepted.message_sha256 != sending.message_sha256:
            raise WireError(
                "the server acknowledged other bytes than were sent; send the message again, and tell its administrator"
            )
        noted = replace(sending, contribution=accepted.contribution, receipts_head=accepted.receipts_head)
        self.outbox.acknowledge(noted)
        return accepted


def _digest(message: bytes) -> str:
    return hashlib.sha256(message).hexdigest()


def _list(answer: Any, name: str) -> list[Any]:
    """A list in an answer. Raises WireError if it is missing."""
    entries = answer.get(name) if isinstance(answer, dict) else None
    if not isinstance(entries, list):
        raise WireError(f"the server's answer has no {name}; it may be of another version of veil")
    return entries


def _link(value: Any) -> Link:
    if not (isinstance(value, list) and len(value) == 3 and isinstance(value[0], int)):
        raise WireError("the server's chain of receipts cannot be read; it may be of another version of veil")
    return value[0], str(value[1]), str(value[2])
