"""`veil serve` as a program: the first start prints the token, the demo's map is made, and a second shell localizes on it."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from veil.cli import main
from veil.server.service import Service


def run(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
def test_the_demo_is_served_and_localizes_from_a_second_shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The line that the server's process prints, given to the command as it stands, finds a pose."""
    monkeypatch.setenv("VEIL_HOME", str(tmp_path / "home"))
    environment = {**os.environ, "VEIL_SERVE_WORKERS": "1", "VEIL_SERVE_MAP_WORKERS": "1"}
    command = [sys.executable, "-m", "veil.cli"]
    with (tmp_path / "log").open("w+") as log:
        port = 20000 + os.getpid() % 20000
        server = subprocess.Popen(
            [*command, "serve", str(tmp_path / "store"), "--demo", "--port", str(port)],
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
        try:
            text = ""
            for _ in range(1800):  # the first start compiles
                text = (tmp_path / "log").read_text()
                if "veil serves" in text or server.poll() is not None:
                    break
                time.sleep(0.1)
            assert re.search(r"admin token, told this once: veil_[\w-]{43}\n", text), text
            (line,) = re.findall(r"^  veil (client localize .*)$", text, re.MULTILINE)
            (page, secret) = re.findall(r"^  (http://\S+)/#token=(\S+)$", text, re.MULTILINE)[0]
            for _ in range(120):  # the line serves, so somebody answers; the map is made meanwhile
                code, shown = main(shlex.split(line)), capsys.readouterr()
                if code == 0:
                    break
                assert code == 3, shown.err
                time.sleep(0.5)
            with urlopen(f"{page}/") as opened:
                assert opened.headers["content-type"].startswith("text/html") and secret not in opened.read().decode()
            with urlopen(Request(f"{page}/v1/maps", headers={"Authorization": f"Bearer {secret}"})) as opened:
                assert [item["name"] for item in json.load(opened)["maps"]] == ["demo in words"]
            assert re.search(r"DSC_0003.jpg: camera center .*, focal length", shown.out), shown
        finally:
            os.killpg(server.pid, signal.SIGTERM)  # its workers as well, as service managers do
            assert server.wait(timeout=60) in (0, -signal.SIGTERM)
    assert not re.search("Traceback|stack trace", (tmp_path / "log").read_text())
    # The next start makes no other token, and the folder serves as it is.
    service = Service(tmp_path / "store")
    assert [(item.name, item.scopes) for item in service.tokens.all()] == [
        ("demo", ("localize", "contribute")),
        ("demo in words", ("localize",)),
        ("administrator", ("admin",)),
    ]
    assert service.records.all()[1].facts["public"] and service.tokens.all()[1].maps == (service.records.all()[1].id,)
    assert service.records.all()[0].facts["models"][0]["images"] == 9
    service.close()


def test_tokens_are_made_listed_and_revoked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store, told = tmp_path / "store", tmp_path / "t.json"
    assert run("serve", "token", store, "--name", "robot 7", "--scopes", "localize", "contribute", "--json", told) == 0
    made = json.loads(told.read_text())
    assert made["secret"] in capsys.readouterr().out and made["scopes"] == ["localize", "contribute"]
    assert run("serve", "token", store, "--list") == 0
    shown = capsys.readouterr().out
    assert f"{made['token']}  robot 7  localize, contribute" in shown and made["secret"] not in shown
    assert run("serve", "token", store, "--revoke", made["token"]) == 0
    assert run("serve", "token", store, "--list") == 0
    assert "robot 7  revoked" in capsys.readouterr().out
    assert run("serve", "token", store, "--revoke", "t0") == 1
    assert run("serve", "token", store) == 1
    assert run("serve", "token", store, "--list", "--name", "x") == 1
    assert "give --name" in capsys.readouterr().err


def test_slips_are_named_before_anything_is_served(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bad.toml").write_text("ports = 1")
    (tmp_path / "file").write_text("x")
    assert run("serve", tmp_path / "store", "--config", tmp_path / "bad.toml") == 1
    assert "there is no setting 'ports'; did you mean 'port'?" in capsys.readouterr().err
    assert run("serve", tmp_path / "store", "--add-map", "lobby") == 1
    assert "NAME=FOLDER" in capsys.readouterr().err
    assert run("serve", tmp_path / "store", "--port", 0, "--add-map", f"lobby={tmp_path / 'none'}") == 1
    assert run("serve", tmp_path / "file", "--port", 0) == 1
