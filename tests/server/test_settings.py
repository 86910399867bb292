"""Settings of a server: a TOML file under the environment, and every slip is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from veil.errors import FileFormatError, InputError, RangeError
from veil.server.settings import ServerSettings, read_settings


def test_the_environment_goes_before_the_file(tmp_path: Path) -> None:
    path = tmp_path / "serve.toml"
    path.write_text('port = 9000\nhost = "0.0.0.0"\ndeadline_s = 5\nlog_requests = true\n')
    settings = read_settings(path, {"VEIL_SERVE_PORT": "9001", "VEIL_SERVE_METRICS_OPEN": "true", "OTHER": "x"})
    assert (settings.port, settings.host, settings.deadline_s) == (9001, "0.0.0.0", 5.0)
    assert settings.log_requests and settings.metrics_open
    assert read_settings(None, {}) == ServerSettings()


def test_a_byte_order_mark_is_no_setting(tmp_path: Path) -> None:
    (tmp_path / "serve.toml").write_bytes(b"\xef\xbb\xbfport = 9000\n")
    assert read_settings(tmp_path / "serve.toml", {}).port == 9000


@pytest.mark.parametrize(
    ("text", "environment", "error", "told"),
    [
        ("ports = 1", {}, InputError, "there is no setting 'ports'; did you mean 'port'"),
        ("port = true", {}, InputError, "takes int"),
        ('port = "many"', {}, InputError, "takes int"),
        ("port = 70000", {}, RangeError, "port"),
        ("workers = 0", {}, RangeError, "workers"),
        ("deadline_s = nan", {}, RangeError, "deadline_s"),
        ("port = 8700.0", {}, InputError, "takes int"),
        ("log_requests = 1", {}, InputError, "takes bool"),
        ("port = 1\nport = 2", {}, FileFormatError, "TOML"),
        ('engine = "slurm"', {}, InputError, "engine"),
        ("port =", {}, FileFormatError, "TOML"),
        ("", {"VEIL_SERVE_LOG_REQUESTS": "perhaps"}, InputError, "takes bool"),
        ("", {"VEIL_SERVE_PROT": "1"}, InputError, "no setting 'prot'; did you mean 'port'"),
    ],
)
def test_slips_are_named(tmp_path: Path, text: str, environment: dict[str, str], error: type[Exception], told: str) -> None:
    (tmp_path / "serve.toml").write_text(text)
    with pytest.raises(error, match=told):
        read_settings(tmp_path / "serve.toml", environment)
    with pytest.raises(FileFormatError):
        read_settings(tmp_path / "missing.toml", {})
