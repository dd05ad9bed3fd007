"""The page's certificate: a headset or a phone opens WebXR over HTTPS only.

`make` signs one certificate with an authority of its own, whose public part is installed on the
device once. The authority's secret key is never written: nobody, this machine included, can sign
anything else that the device would trust.
"""

from __future__ import annotations

import ipaddress
import math
import os
import shlex
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from robot_rl.errors import ConfigError, SetupError, did_you_mean

CA, PAGE, KEY = "page_ca.crt", "page.crt", "page.key"
VALID = timedelta(days=397)  # what Apple's systems accept of a server
SOON = timedelta(days=14)
LOCAL = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class PageCertificate:
    """Files of a certificate, the names it is for, and the fingerprint of its authority."""

    ca: Path
    chain: Path
    key: Path
    names: tuple[str, ...]
    fingerprint: str
    days: int  # left, the one that has begun included


def own_names() -> list[str]:
    """What this machine is called in its network: host name, `.local` name, address."""
    name = socket.gethostname()
    found = [name] if "." in name else [name, f"{name}.local"]
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # sends nothing; asks which address would be used
        found.append(probe.getsockname()[0])
    return found


def make(folder: Path, names: Sequence[str], *, force: bool = False) -> PageCertificate:
    """Make a certificate for these host names and addresses, and for this machine itself.

    Raises:
        ConfigError: a certificate exists and `force` is not set, or a name is none.
        SetupError: the console extra is not installed.
    """
    existing = [n for n in (CA, PAGE, KEY) if (folder / n).exists()]
    if existing and not force:
        raise ConfigError(
            "the page has a certificate already",
            expected="a folder without one",
            got=", ".join(existing),
            fix="use it, choose another folder, or --force (every device must then trust anew)",
        )
    x509, hashes, serialization, ec = _cryptography()
    wanted = list(dict.fromkeys((*LOCAL, *(_checked(name) for name in names))))
    now, until = datetime.now(UTC), datetime.now(UTC) + VALID
    ca_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    authority = _name(x509, f"robot-rl page of {socket.gethostname()}"[:64])

    def begin(subject: Any, public: Any) -> Any:
        builder = x509.CertificateBuilder().subject_name(subject).issuer_name(authority)
        builder = builder.public_key(public).serial_number(x509.random_serial_number())
        return builder.not_valid_before(now - timedelta(minutes=5)).not_valid_after(until)

    usage = dict.fromkeys(
        ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement",
         "encipher_only", "decipher_only"), False,
    )  # fmt: skip
    ca = (
        begin(authority, ca_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(
            x509.KeyUsage(digital_signature=False, key_cert_sign=True, crl_sign=True, **usage),
            critical=True,
        )
        .add_extension(
            x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key()), critical=False
        )
        .sign(ca_key, hashes.SHA256())
    )
    alternatives = [_alternative(x509, name) for name in wanted]
    page = (
        begin(_name(x509, wanted[-1][:64]), key.public_key())
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(
            x509.KeyUsage(digital_signature=True, key_cert_sign=False, crl_sign=False, **usage),
            critical=True,
        )
        .add_extension(
            x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.SERVER_AUTH]), critical=False
        )
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False
        )
        .sign(ca_key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    _write(folder / KEY, secret, 0o600)
    _write(folder / PAGE, page.public_bytes(pem), 0o644)
    _write(folder / CA, ca.public_bytes(pem), 0o644)
    return load(folder)


def load(folder: Path) -> PageCertificate:
    """The certificate in a folder.

    Raises:
        ConfigError: there is none, it is spoilt or out of date, or others may read its key.
    """
    x509, hashes, _, _ = _cryptography()
    ca, chain, key = (folder / name for name in (CA, PAGE, KEY))
    make_it = f"robot-rl keys {shlex.quote(str(folder))} --page"
    again = f"{make_it} --force, then let the device trust it anew"
    missing = [path.name for path in (ca, chain, key) if not path.is_file()]
    if missing:
        raise ConfigError(
            f"no certificate of the page in {folder}",
            expected=f"{CA}, {PAGE}, {KEY}",
            got=f"without {', '.join(missing)}",
            fix=make_it,
        )
    if key.stat().st_mode & 0o077:
        raise ConfigError(
            f"others may read {key}",
            expected="a file that only you may read (mode 600)",
            got=f"mode {key.stat().st_mode & 0o777:o}",
            fix=f"chmod 600 {key}; if somebody may have read it: {again}",
        )
    try:
        page = x509.load_pem_x509_certificate(chain.read_bytes())
        authority = x509.load_pem_x509_certificate(ca.read_bytes())
        page.verify_directly_issued_by(authority)
        kind = x509.SubjectAlternativeName
        told = page.extensions.get_extension_for_class(kind).value
    except Exception as error:  # the library's own kinds, and ValueError
        raise ConfigError(
            f"{folder} does not hold a certificate of the page",
            expected=f"{PAGE} signed by {CA}",
            got=f"{type(error).__name__}: {error}"[:120],
            fix=again,
        ) from error
    left = page.not_valid_after_utc - datetime.now(UTC)
    if left <= timedelta(0):
        raise ConfigError(
            "the page's certificate is out of date",
            expected=f"one that is at most {VALID.days} days old",
            got=f"valid until {page.not_valid_after_utc:%Y-%m-%d}",
            fix=again,
        )
    names = (*told.get_values_for_type(x509.DNSName),
             *(str(a) for a in told.get_values_for_type(x509.IPAddress)))  # fmt: skip
    print_ = authority.fingerprint(hashes.SHA256()).hex(":").upper()
    days = math.ceil(left / timedelta(days=1))
    return PageCertificate(ca, chain, key, names, print_, days)


def check_host(certificate: PageCertificate, host: str) -> None:
    """Refuse to serve at an address that the certificate is not for, or at every address at once.

    Raises:
        ConfigError: `host` is a wildcard, or not in the certificate.
    """
    if host not in certificate.names:
        _checked(host)  # an address that means all of them gets an error of its own
        raise ConfigError(
            f"the page's certificate is not for '{host}'",
            expected=f"one of {', '.join(certificate.names)}",
            got=host,
            fix=f"{did_you_mean(host, certificate.names)}; or: robot-rl keys FOLDER --page {host}",
        )


def _checked(name: str) -> str:
    """A host name or an address as a certificate may have it. Raises `ConfigError`."""
    with suppress(ValueError):
        address = ipaddress.ip_address(name)
        if not address.is_unspecified and not address.is_multicast:
            return str(address)
    plain = name.replace("-", "").replace(".", "")
    parts_fine = all(0 < len(part) <= 63 for part in name.split("."))
    if plain.isalnum() and name.isascii() and parts_fine and not plain.isdigit():
        return name.lower()
    raise ConfigError(
        f"'{name}' is not a name that a page can be served under",
        expected="a host name or an address of this machine",
        got=repr(name),
        fix="e.g. robot-pc.local or 192.168.1.5; an address that means all of them is none",
    )


def _alternative(x509: Any, name: str) -> Any:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _name(x509: Any, text: str) -> Any:
    return x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, text)])


def _write(path: Path, data: bytes, mode: int) -> None:
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(data)


def _cryptography() -> tuple[Any, Any, Any, Any]:
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
    except ModuleNotFoundError as error:
        raise SetupError(
            "the page's certificate needs the package 'cryptography'",
            expected="import cryptography works",
            got=str(error),
            fix="pip install 'robot-rl[console]'",
        ) from error
    return x509, hashes, serialization, ec
