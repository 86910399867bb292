"""Pages of audits as `veil view` reads them back: only their own pictures, and never what a hostile page would like."""

from __future__ import annotations

import base64
import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from veil.errors import FileFormatError
from veil.files.audit_pages import is_audit_page, read_audit_page
from worlds import generator

HEAD = '<!doctype html><meta charset="utf-8"><meta name="generator" content="veil audit 0.1.0">'


def jpeg(rgb: np.ndarray) -> str:
    buffer = io.BytesIO()
    Image.fromarray(rgb).save(buffer, "JPEG", quality=95)
    return f"data:image/jpeg;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def picture(source: str, *, release: str = "3f2a", kind: str = "reconstructed", alt: str = "drawn") -> str:
    return f'<figure><img src="{source}" alt="{alt}" data-release="{release}" data-image="a.jpg" data-kind="{kind}"></figure>'


def test_pictures_come_back_with_what_is_said_of_them(tmp_path: Path) -> None:
    """Planted truth: a smooth picture, which JPEG keeps to a few steps; pictures that say nothing are not the audit's."""
    random = generator("audit page")
    smooth = np.add.outer(np.arange(64), np.arange(80))[:, :, None].repeat(3, axis=2).astype(np.uint8)
    foreign = f'<img src="{jpeg(random.integers(0, 255, (9, 9, 3), dtype=np.uint8))}" alt="curves">'
    page = HEAD + picture(jpeg(smooth), alt="drawn from &lt;b&gt; &amp; words") + foreign
    page += picture(jpeg(smooth), kind="photograph")
    (tmp_path / "audit.html").write_text(page)
    first, second = read_audit_page(tmp_path / "audit.html")
    assert (first.release, first.image, first.kind, first.title) == ("3f2a", "a.jpg", "reconstructed", "drawn from <b> & words")
    assert second.kind == "photograph" and np.abs(first.rgb.astype(int) - smooth).max() < 12
    assert is_audit_page(Path("a.HTML")) and not is_audit_page(Path("a.json")) and not is_audit_page(tmp_path)


@pytest.mark.parametrize(
    ("page", "told"),
    [
        ("<html><body>a page</body></html>", "not the page of an audit"),
        (HEAD.replace("veil audit", "another"), "not the page of an audit"),
        (HEAD + picture("https://elsewhere.example/a.jpg"), "damaged"),
        (HEAD + picture("file:///etc/passwd"), "damaged"),
        (HEAD + picture("data:image/jpeg;base64,AAAA"), "damaged"),
        (HEAD + picture("data:image/svg+xml;base64,PHN2Zy8+"), "damaged"),
        (HEAD + picture(jpeg(np.zeros((4, 4, 3), dtype=np.uint8)), kind="other"), "does not know"),
        (HEAD + picture(jpeg(np.zeros((4097, 4097, 3), dtype=np.uint8))), "more than an audit draws"),
    ],
)
def test_foreign_and_damaged_pages_are_refused(page: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "audit.html").write_text(page)
    with pytest.raises(FileFormatError, match=told):
        read_audit_page(tmp_path / "audit.html")


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "audit.html").write_bytes(bytes(range(256)))
    with pytest.raises(FileFormatError, match="not the page of an audit"):
        read_audit_page(tmp_path / "audit.html")
    with pytest.raises(FileFormatError, match="cannot read"):
        read_audit_page(tmp_path / "missing.html")
