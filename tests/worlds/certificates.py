"""Certificates that a test makes for this machine, and trusts."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from worlds.issuers import rsa_key


def write_certificate(folder: Path) -> None:
    """Write `fullchain.pem`, `key.pem`, and both in `both.pem`, of a certificate for 127.0.0.1 that vouches for itself."""
    key, name = rsa_key(0), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now, day = datetime.datetime.now(datetime.timezone.utc), datetime.timedelta(days=1)
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key()).serial_number(1)
    here = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    signed = made.not_valid_before(now - day).not_valid_after(now + day).add_extension(here, critical=False)
    certificate = signed.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    for file, data in (("fullchain.pem", certificate), ("key.pem", private), ("both.pem", certificate + private)):
        (folder / file).write_bytes(data)
