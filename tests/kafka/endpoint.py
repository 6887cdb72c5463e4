"""Endpoint of a cluster for stock clients: the brokers' addresses, and how a client identifies
itself.

Leaves the files of a secure cluster to `quire.local.secure_directory`.

Invariant: a password and a key reach another process in a file that only its owner can read, never
in an argument.
"""

import functools
import json
import ssl
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from quire.identity.secret_files import read_secret
from quire.local.secure_directory import CLIENT_NAME, SecureDirectory

MECHANISM: Final = "SCRAM-SHA-512"
LOGIN_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"


@dataclass(frozen=True, slots=True)
class Login:
    """A client with a password, over TLS (`SASL_SSL`)."""

    user: str
    password: str = field(repr=False)
    authorities: Path


@dataclass(frozen=True, slots=True)
class Certificate:
    """A client with a certificate (`SSL`), or without one if the paths are None."""

    authorities: Path
    certificate: Path | None
    key: Path | None


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Addresses for `bootstrap.servers`, and the identity of the client; without one, plaintext."""

    addresses: str
    identity: Login | Certificate | None = None

    @classmethod
    def with_login(cls, addresses: str, directory: SecureDirectory) -> Self:
        """Return the endpoint of the user of a secure directory."""
        password = read_secret(directory.password_file(CLIENT_NAME))
        return cls(addresses, Login(CLIENT_NAME, password, directory.path / "ca.pem"))

    @classmethod
    def with_certificate(cls, addresses: str, directory: SecureDirectory) -> Self:
        """Return the endpoint of the certificate of a secure directory's client."""
        certificate, key = (directory.path / f"{CLIENT_NAME}{end}.pem" for end in ("", "-key"))
        return cls(addresses, Certificate(directory.path / "ca.pem", certificate, key))

    @property
    def librdkafka(self) -> dict[str, str | int | float | bool]:
        """Settings of librdkafka."""
        settings = {"bootstrap.servers": self.addresses}
        match self.identity:
            case None:
                return {**settings}
            case Login(user, password, authorities):
                return {
                    **settings,
                    "security.protocol": "SASL_SSL",
                    "ssl.ca.location": str(authorities),
                    "sasl.mechanism": MECHANISM,
                    "sasl.username": user,
                    "sasl.password": password,
                }
            case Certificate(authorities, certificate, key):
                own = {"ssl.certificate.location": certificate, "ssl.key.location": key}
                return {
                    **settings,
                    "security.protocol": "SSL",
                    "ssl.ca.location": str(authorities),
                    **{name: str(path) for name, path in own.items() if path is not None},
                }

    @property
    def keywords(self) -> dict[str, object]:
        """Keyword arguments of the clients of kafka-python and aiokafka."""
        settings = {"bootstrap_servers": self.addresses}
        match self.identity:
            case None:
                return {**settings}
            case Login(user, password, authorities):
                return {
                    **settings,
                    "security_protocol": "SASL_SSL",
                    "ssl_context": _context(authorities, None, None),
                    "sasl_mechanism": MECHANISM,
                    "sasl_plain_username": user,
                    "sasl_plain_password": password,
                }
            case Certificate(authorities, certificate, key):
                return {
                    **settings,
                    "security_protocol": "SSL",
                    "ssl_context": _context(authorities, certificate, key),
                }

    @property
    def java(self) -> dict[str, str]:
        """Properties of Kafka's Java clients and tools, without the addresses."""
        match self.identity:
            case None:
                return {}
            case Login(user, password, authorities):
                return {
                    "security.protocol": "SASL_SSL",
                    **_java_authorities(authorities),
                    "sasl.mechanism": MECHANISM,
                    "sasl.jaas.config": f"{LOGIN_MODULE} required "
                    f'username="{user}" password="{password}";',
                }
            case Certificate(authorities, certificate, key):
                own = {"ssl.keystore.certificate.chain": certificate, "ssl.keystore.key": key}
                texts = {name: path.read_text() for name, path in own.items() if path is not None}
                return {
                    "security.protocol": "SSL",
                    **_java_authorities(authorities),
                    **({"ssl.keystore.type": "PEM", **texts} if texts else {}),
                }

    @property
    def kafkajs(self) -> dict[str, object]:
        """Options of kafkajs."""
        settings = {"brokers": self.addresses.split(",")}
        match self.identity:
            case None:
                return {**settings}
            case Login(user, password, authorities):
                login = {"mechanism": MECHANISM.lower(), "username": user, "password": password}
                return {**settings, "ssl": {"ca": [authorities.read_text()]}, "sasl": login}
            case Certificate(authorities, certificate, key):
                own = {"cert": certificate, "key": key}
                texts = {name: path.read_text() for name, path in own.items() if path is not None}
                return {**settings, "ssl": {"ca": [authorities.read_text()], **texts}}


def _java_authorities(authorities: Path) -> dict[str, str]:
    return {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(authorities)}


@functools.cache
def _context(authorities: Path, certificate: Path | None, key: Path | None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=authorities)
    if certificate is not None:
        context.load_cert_chain(certificate, key)
    return context


def properties_text(settings: Mapping[str, object]) -> str:
    """Return the text of a Java properties file, one line for each value."""
    lines = (f"{name}={_escaped(str(value))}\n" for name, value in settings.items())
    return "".join(lines)


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n")


@contextmanager
def properties_file(settings: Mapping[str, object]) -> Iterator[str]:
    """Write a Java properties file; yield its path, and remove it."""
    with _file(".properties", properties_text(settings)) as path:
        yield path


@contextmanager
def json_file(settings: Mapping[str, object]) -> Iterator[str]:
    """Write a JSON file; yield its path, and remove it."""
    with _file(".json", json.dumps(settings)) as path:
        yield path


@contextmanager
def _file(suffix: str, text: str) -> Iterator[str]:
    with tempfile.NamedTemporaryFile("w", suffix=suffix) as file:  # of mode 600
        file.write(text)
        file.flush()
        yield file.name
