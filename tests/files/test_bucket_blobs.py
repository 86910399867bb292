"""Blobs in a folder and in a bucket: equal bytes are one, damage is seen, what is deleted is gone, no name leads elsewhere."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path
from typing import Any

import pytest

from veil.errors import FileFormatError, InputError, StorageTrouble
from veil.files.service.blobs import Blobs, FolderBlobs
from worlds import buckets as s3
from worlds.buckets import SECRET, Buckets

KINDS = ["folder", pytest.param("bucket", marks=pytest.mark.slow)]


@pytest.fixture(params=KINDS)
def blobs(request: pytest.FixtureRequest, tmp_path: Path) -> Blobs:
    if request.param == "folder":
        return FolderBlobs(tmp_path / "blobs")
    buckets: Buckets = request.getfixturevalue("buckets")
    from veil.files.service.bucket_blobs import S3Blobs

    name = f"veil-{tmp_path.name.replace('_', '-').lower()[-40:]}"
    return S3Blobs(f"{buckets.make(name)}/some/prefix", plain=True)


def test_bytes_come_back_by_their_digest(blobs: Blobs, tmp_path: Path) -> None:
    """Inverse pair; the names are those of hashlib."""
    values = [b"", b"one", bytes(range(256)) * 40_000]
    names = [blobs.put(value) for value in values]
    assert names == [hashlib.sha256(value).hexdigest() for value in values]
    for number, (name, value) in enumerate(zip(names, values, strict=True)):
        assert blobs.get(name) == value and blobs.has(name)
        blobs.place(name, tmp_path / str(number))
        assert (tmp_path / str(number)).read_bytes() == value
    assert blobs.put(b"one") == names[1]
    assert sorted(blobs.names()) == sorted(names)
    blobs.delete(names[1])
    blobs.delete(names[1])
    assert sorted(blobs.names()) == sorted([names[0], names[2]]) and not blobs.has(names[1])


def test_bytes_belong_to_one_store(blobs: Blobs) -> None:
    """Whoever claims them first is the owner, until somebody claims them anew; the note is none of the bytes."""
    assert blobs.owner() is None
    assert blobs.claim("s1") == "s1" == blobs.claim("s2") == blobs.owner()
    assert blobs.claim("s2", anew=True) == "s2" == blobs.owner()
    assert list(blobs.names()) == []


def test_what_a_kill_left_of_bytes_goes_with_them(blobs: Blobs) -> None:
    """In a folder the bytes may be half-written beside their file; in a bucket only a start's probe can be left."""
    data = b"planted" * 100
    name = blobs.put(data)
    if isinstance(blobs, FolderBlobs):
        part = blobs.path(name).with_name(f".{name}.abcd1234.veil.part")
        part.write_bytes(data)
        blobs.clear(older_than_s=3600.0)
        assert part.exists(), "somebody may be writing it"
        blobs.delete(name)
        assert not part.exists() and not blobs.has(name)
        part.write_bytes(data)
    else:
        from veil.files.service import bucket_blobs

        bucket: Any = blobs
        bucket_blobs.obstore.put(bucket._store, "probes/0123456789abcdef", b"veil")
    blobs.clear(older_than_s=0.0)
    left = sorted(blobs.folder.rglob("*.part")) if isinstance(blobs, FolderBlobs) else bucket_keys(blobs)
    assert [key for key in left if "probes" in str(key) or "part" in str(key)] == []


def bucket_keys(blobs: Any) -> list[str]:
    from veil.files.service import bucket_blobs

    return [item["path"] for page in bucket_blobs.obstore.list(blobs._store) for item in page]


def test_missing_and_other_names_are_refused(blobs: Blobs, tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match=r"cannot read|missing"):
        blobs.get("0" * 64)
    with pytest.raises(FileFormatError, match=r"cannot read|missing"):
        blobs.place("0" * 64, tmp_path / "x")
    assert not (tmp_path / "x").exists()
    for wrong in ("", "../../etc/passwd", "A" * 64, "0" * 65, "g" * 64):
        for ask in (blobs.get, blobs.delete, blobs.has):
            with pytest.raises(InputError):
                ask(wrong)


@pytest.mark.slow
def test_a_bucket_is_not_believed(buckets: Buckets, tmp_path: Path) -> None:
    """Whoever may write the bucket can put other bytes under a name: they are read as damage, and leave no file."""
    from veil.files.service.bucket_blobs import S3Blobs

    blobs = S3Blobs(buckets.make("veil-damaged"), plain=True)
    name = blobs.put(b"right")
    (key,) = {key for key in buckets.objects("veil-damaged") if key.endswith(name)}
    buckets.damage("veil-damaged", key, b"wrong")
    with pytest.raises(FileFormatError, match="damaged"):
        blobs.get(name)
    with pytest.raises(FileFormatError, match="damaged"):
        blobs.place(name, tmp_path / "x")
    assert list(tmp_path.glob("*x*")) == []


@pytest.mark.slow
def test_what_is_deleted_is_in_no_version(buckets: Buckets) -> None:
    """Planted bytes are gone; a bucket that would keep a version is refused. Broken twin: there, they would be left."""
    from veil.files.service.bucket_blobs import S3Blobs

    planted = b"planted" * 20
    blobs = S3Blobs(buckets.make("veil-plain"), plain=True)
    name = blobs.put(planted)
    assert planted in buckets.objects("veil-plain").values()
    blobs.delete(name)
    assert buckets.objects("veil-plain") == {}
    address = buckets.make("veil-versions", versions=True)
    with pytest.raises(InputError, match="keeps versions"):
        S3Blobs(address, plain=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(S3Blobs, "_require_forgetting", lambda self: None)
        twin = S3Blobs(address, plain=True)
    twin.delete(twin.put(planted))
    assert planted in buckets.objects("veil-versions").values()


@pytest.mark.slow
@pytest.mark.skipif(bool(s3.missing()), reason=s3.missing() or "S3 is here")
def test_a_bucket_that_is_away_is_told_without_secrets(buckets: Buckets, monkeypatch: pytest.MonkeyPatch) -> None:
    from veil.files.service import bucket_blobs
    from veil.files.service.bucket_blobs import S3Blobs

    with pytest.raises(StorageTrouble, match="is not there"):
        S3Blobs("s3://veil-missing", plain=True)
    with pytest.raises(StorageTrouble, match="cannot be used now"):  # https is asked of a server that speaks http
        S3Blobs(buckets.make("veil-plain-only"))
    monkeypatch.setattr(bucket_blobs, "RETRIES", 1)
    with monkeypatch.context() as patch:
        patch.setenv("AWS_ENDPOINT", "http://127.0.0.1:1")
        begun = time.monotonic()
        with pytest.raises(StorageTrouble) as refused:
            S3Blobs("s3://veil-plain-only", plain=True)
        assert time.monotonic() - begun < 10
    assert SECRET not in str(refused.value) and refused.value.__cause__ is None
    assert os.environ["AWS_SECRET_ACCESS_KEY"] == SECRET, "it was there to be told"
    for wrong in ("s3:///x", "https://bucket/x", f"s3://key:{SECRET}@bucket/x", f"s3://bucket/x?secret={SECRET}"):
        with pytest.raises(InputError) as slip:
            S3Blobs(wrong)
        assert SECRET not in str(slip.value)
