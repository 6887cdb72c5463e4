"""Differential cases: logins, and what comes before, between and after their requests."""

import struct
from collections.abc import Mapping
from typing import Final

from tests.differential.answers import Json, number, reduce
from tests.differential.security.login import (
    BINDING,
    LoginWire,
    auth_bytes,
    final_message,
    first_message,
)
from tests.differential.security.secure_run import PASSWORD, SecureRun
from tests.differential.security.servers import MECHANISM
from tests.differential.wire import (
    ConnectionClosedError,
    NoAnswerError,
    Tree,
    bare_request,
)

Step = tuple[str, int, Mapping[str, Tree]]

HANDSHAKE: Final = "SaslHandshake"
AUTHENTICATE: Final = "SaslAuthenticate"
METADATA: Final[Step] = ("Metadata", 9, {"topics": []})
API_VERSIONS: Final[Step] = ("ApiVersions", 0, {})
FRAME_BYTES_MAX: Final = 524_288
OTHER_BINDING: Final = "eSws"
"""The binding of a client that supports channel binding: "y,,"."""


class Steps:
    """Requests on one connection, whose answers are recorded under one name."""

    def __init__(self, run: SecureRun, name: str, wire: LoginWire | None = None) -> None:
        self._run = run
        self._name = name
        self._wire = wire or run.login_wire(None, "")
        self._heard: list[Json] = []

    async def ask(self, api: str, version: int, values: Mapping[str, Tree]) -> Tree:
        """Send a request and note what comes back; after the end of the connection send nothing."""
        if self._heard and self._heard[-1] in ("connection closed", "no answer"):
            return None
        try:
            if not self._wire.is_open:
                await self._wire.connect()
            answer = await self._wire.ask(api, version, values)
        except ConnectionClosedError:
            self._heard.append("connection closed")
            return None
        except NoAnswerError:
            self._heard.append("no answer")
            return None
        without = ["api_keys"]
        noted = reduce(answer, self._run.prefix, without, self._run.kept)
        if isinstance(noted, dict) and "session_lifetime_ms" in (answer or {}):  # type: ignore[operator]
            noted["has lifetime"] = number(answer, "session_lifetime_ms") > 0
        self._heard.append(noted)
        return answer

    async def shake_hands(self, mechanism: str = MECHANISM, version: int = 1) -> Tree:
        """Send SaslHandshake."""
        return await self.ask(HANDSHAKE, version, {"mechanism": mechanism})

    async def authenticate(self, message: bytes, version: int = 2) -> Tree:
        """Send SaslAuthenticate."""
        return await self.ask(AUTHENTICATE, version, {"auth_bytes": message})

    async def log_in(self, user: str, password: str = PASSWORD, version: int = 2) -> None:
        """Log in, by a handshake and two messages."""
        await self.shake_hands()
        challenge = auth_bytes(await self.authenticate(first_message(user), version))
        if challenge:
            await self.authenticate(final_message(user, password, challenge), version)

    async def end(self) -> None:
        """Send one more request, which shows whether the client is logged in, and close."""
        await self.ask(*METADATA)
        await self.close()

    async def close(self) -> None:
        """Record the answers."""
        await self._wire.aclose()
        self._run.answers[f"login/{self._name}"] = self._heard


async def logging_in(run: SecureRun) -> None:
    """Log in, rightly and wrongly."""
    user, other = run.name("login"), run.name("other")
    await run.add_users([user, other])
    for version in range(3):
        steps = Steps(run, f"right, version {version}")
        await steps.log_in(user, version=version)
        await steps.end()
    for name, who, password in (
        ("wrong password", user, "wrong"),
        ("unknown user", run.name("unknown"), PASSWORD),
        ("empty user", "", PASSWORD),
        ("user in another case", user.upper(), PASSWORD),
    ):
        steps = Steps(run, name)
        await steps.log_in(who, password)
        await steps.end()
    firsts = {
        "empty message": b"",
        "no SCRAM message": b"hello",
        "not UTF-8": b"\xff\xfe\xfd",
        "own name as authorization": first_message(user, f"n,a={user},"),
        "other name as authorization": first_message(user, f"n,a={other},"),
        "channel binding demanded": first_message(user, "p=tls-unique,,"),
        "channel binding supported": first_message(user, "y,,"),
        "user with an extension": first_message(user) + b",tokenauth=true",
        "user that is not escaped": first_message("a=b"),
        "no nonce": f"n,,n={user}".encode(),
    }
    for name, message in firsts.items():
        steps = Steps(run, name)
        await steps.shake_hands()
        await steps.authenticate(message)
        await steps.end()


async def wrong_proofs(run: SecureRun) -> None:
    """Answer the challenge wrongly."""
    user = run.name("prover")
    await run.add_users([user])

    async def prove(name: str, **options: str) -> None:
        steps = Steps(run, name)
        await steps.shake_hands()
        challenge = auth_bytes(await steps.authenticate(first_message(user)))
        await steps.authenticate(final_message(user, PASSWORD, challenge, **options))
        await steps.end()

    await prove("right proof")
    await prove("longer nonce", nonce_end="x")
    await prove("other channel binding", binding=OTHER_BINDING)
    for name, message in {
        "proof without a challenge's nonce": f"c={BINDING},r=wrong,p=AAAA".encode(),
        "empty proof": b"",
        "proof that is no base64": f"c={BINDING},r=x,p=!".encode(),
    }.items():
        steps = Steps(run, name)
        await steps.shake_hands()
        await steps.authenticate(first_message(user))
        await steps.authenticate(message)
        await steps.end()


async def in_another_order(run: SecureRun) -> None:
    """Send the requests of a login in another order, and others before it."""
    user = run.name("orderly")
    await run.add_users([user])
    for mechanism in ("SCRAM-SHA-256", "PLAIN", "GSSAPI", "NONE", "", "scram-sha-512"):
        steps = Steps(run, f"mechanism {mechanism or 'empty'}")
        await steps.shake_hands(mechanism)
        await steps.shake_hands()
        await steps.close()
    steps = Steps(run, "handshake of version 0")
    await steps.shake_hands(version=0)
    await steps.close()
    steps = Steps(run, "handshake twice")
    await steps.shake_hands()
    await steps.log_in(user)
    await steps.end()
    steps = Steps(run, "authenticate without a handshake")
    await steps.authenticate(first_message(user))
    await steps.end()
    steps = Steps(run, "request before the login")
    await steps.end()
    steps = Steps(run, "request after the handshake")
    await steps.shake_hands()
    await steps.end()
    steps = Steps(run, "request after the challenge")
    await steps.shake_hands()
    await steps.authenticate(first_message(user))
    await steps.end()
    steps = Steps(run, "ApiVersions before the login")
    await steps.ask(*API_VERSIONS)
    await steps.log_in(user)
    await steps.end()
    steps = Steps(run, "ApiVersions twice before the login")
    await steps.ask(*API_VERSIONS)
    await steps.ask(*API_VERSIONS)
    await steps.log_in(user)
    await steps.end()
    steps = Steps(run, "ApiVersions after the handshake")
    await steps.shake_hands()
    await steps.ask(*API_VERSIONS)
    await steps.close()
    steps = Steps(run, "first message again after the challenge")
    await steps.shake_hands()
    await steps.authenticate(first_message(user))
    await steps.authenticate(first_message(user))
    await steps.end()


async def again(run: SecureRun) -> None:
    """Log in again on a connection that is logged in (KIP-368)."""
    user, other = run.name("again"), run.name("another")
    await run.add_users([user, other])

    async def after_login(name: str) -> Steps:
        steps = Steps(run, f"again, {name}")
        await steps.log_in(user)
        return steps

    steps = await after_login("right")
    await steps.log_in(user)
    await steps.end()
    steps = await after_login("wrong password")
    await steps.log_in(user, "wrong")
    await steps.end()
    steps = await after_login("other user")
    await steps.log_in(other)
    await steps.end()
    steps = await after_login("mechanism that is not enabled")
    await steps.shake_hands("PLAIN")
    await steps.end()
    steps = await after_login("authenticate without a handshake")
    await steps.authenticate(first_message(user))
    await steps.end()
    steps = await after_login("request in between")
    await steps.shake_hands()
    await steps.end()
    steps = await after_login("version 0")
    await steps.log_in(user, version=0)
    await steps.end()


async def frames(run: SecureRun) -> None:
    """Frames of a client that has not logged in."""
    for name, frame in {
        "frame beyond the limit": struct.pack(">i", FRAME_BYTES_MAX + 1) + b"x" * 100,
        "negative frame": struct.pack(">i", -1),
        "empty frame": struct.pack(">i", 0),
        "unknown key": bare_request(999, 0),
        "handshake of an unknown version": bare_request(17, 99),
        "authenticate of an unknown version": bare_request(36, 99),
        "ApiVersions of an unknown version": bare_request(18, 99, b"\0"),
    }.items():
        wire = run.login_wire(None, "")
        await wire.connect()
        try:
            answer = await wire.exchange(frame)
            run.answers[f"login/{name}"] = f"answered, error {int.from_bytes(answer[4:6], 'big')}"
        except ConnectionClosedError:
            run.answers[f"login/{name}"] = "connection closed"
        except NoAnswerError:
            run.answers[f"login/{name}"] = "no answer"
        finally:
            await wire.aclose()


CASES: Final = (logging_in, wrong_proofs, in_another_order, again, frames)
