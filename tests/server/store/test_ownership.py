"""Who may see and delete what of whom: every set of scopes, limit of maps and owner, and every route that names a thing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

import pytest

from veil.device.device import Device
from veil.features import Features
from veil.server.access.tokens import SCOPES, Quota, Scope
from veil.server.maps.policy import MapPolicy
from veil.server.service import Service
from veil.server.settings import ServerSettings
from worlds.servers import Running, messages_of, running

SETS: list[tuple[Scope, ...]] = [scopes for count in (1, 2, 3) for scopes in combinations(SCOPES, count)]


@dataclass(frozen=True)
class Who:
    """A token: what it may do, on which map (None: all), and what it contributed ("" for nothing)."""

    secret: str
    scopes: tuple[Scope, ...]
    limit: str | None
    contribution: str = ""

    @property
    def is_admin(self) -> bool:
        return "admin" in self.scopes

    @property
    def contributes(self) -> bool:
        return self.is_admin or "contribute" in self.scopes

    def expected(self, seen: bool) -> int:
        """The status of a question about a contribution that is there for it or not, as the service's page has it."""
        return 403 if not self.contributes else 200 if seen else 404


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(Service(tmp_path_factory.mktemp("server"), ServerSettings(workers=1)), jobs=False) as server:
        yield server


@pytest.mark.slow
def test_what_is_anothers_does_not_exist(
    server: Running, door: dict[str, Features], tmp_path_factory: pytest.TempPathFactory, unchecked: None
) -> None:
    """All pairs of a token and a contribution: read, list, job, delete, receipt. Oracle: the rule in `Who`, of five lines.

    Each owner's contribution is of the same bytes, so that a check of the message's digest alone would let others in.
    """
    tokens, records = server.service.tokens, server.service.records
    here, there = records.make("here", MapPolicy()).id, records.make("there", MapPolicy()).id
    device = Device(tmp_path_factory.mktemp("device"))
    message = next(iter(messages_of(dict(list(door.items())[:1]), device, most=30).values()))

    def made(scopes: tuple[Scope, ...], limit: str | None, gives: bool) -> Who:
        quota = Quota(requests_per_minute=1 << 40)
        secret = tokens.make("one of many", scopes, maps=None if limit is None else [limit], quota=quota)[1]
        if not gives:
            return Who(secret, scopes, limit)
        answer = server.ask("POST", f"/v1/maps/{here}/contributions", token=secret, body=message)
        assert answer.status == 202
        return Who(secret, scopes, limit, answer.value["contribution"])

    able = [scopes for scopes in SETS if "contribute" in scopes or "admin" in scopes]
    owners = [made(scopes, limit, True) for scopes in able for limit in (None, here)]
    everybody = [*owners, *(made(scopes, limit, False) for scopes in SETS for limit in (None, here, there))]
    assert (len(owners), len(everybody), len({who.contribution for who in owners})) == (12, 33, 12)
    job = server.service.jobs.of_map(here)[0].id

    def status(who: Who, method: str, path: str) -> int:
        return server.ask(method, path, token=who.secret).status

    for who in everybody:
        uses_map = who.is_admin or who.limit in (None, here)
        assert status(who, "GET", f"/v1/jobs/{job}") == who.expected(uses_map)
        assert status(who, "GET", f"/v1/maps/{here}") == (200 if uses_map else 404)
        for question in ("", "?everybody=true", f"?map_id={here}", f"?everybody=true&map_id={here}"):
            answer = server.ask("GET", f"/v1/contributions{question}", token=who.secret)
            assert answer.status == who.expected(True)
            if answer.status == 200:
                listed = {item["contribution"] for item in answer.value["contributions"]}
                everything = who.is_admin and "everybody" in question
                assert listed == {item.contribution for item in owners if everything or item is who}
        for owner in owners:
            path = f"/v1/contributions/{owner.contribution}"
            sees = owner is who or who.is_admin
            assert status(who, "GET", path) == who.expected(sees), (who, owner)
            if owner in (who, owners[0]):  # nobody has a receipt yet
                assert status(who, "GET", f"{path}/receipt") == who.expected(False)
            if not sees:
                assert status(who, "DELETE", path) == who.expected(False)
    for owner in owners:  # nobody's attempt took one away
        assert status(owner, "DELETE", f"/v1/contributions/{owner.contribution}") == 200
    for who in everybody:
        for owner in owners:
            path = f"/v1/contributions/{owner.contribution}"
            sees = owner is who or who.is_admin
            assert status(who, "GET", f"{path}/receipt") == who.expected(sees), (who, owner)
            if owner in (who, owners[0]):  # nobody's is there any more
                assert status(who, "GET", path) == who.expected(False)
    revoked = owners[0]
    tokens.revoke(next(item.id for item in tokens.all() if item.name == "one of many"))
    for path in (f"/v1/jobs/{job}", f"/v1/contributions/{revoked.contribution}/receipt", f"/v1/maps/{here}"):
        assert status(revoked, "GET", path) == 401
