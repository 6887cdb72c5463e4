"""Player of transcripts of roles on ledgers, with a bookie's real connections and authorizer.

Leaves the messages of a connection to `bookie_wire.py`, durability to the transcripts of a bookie,
and the metadata service to the one in memory.

Set-up: `authorizer enforce` or `authorizer record`; `super-users NAME;NAME` and `logins optional`
or `logins required`, which may be absent. A name is the common name of a certificate; `anonymous`
has no certificate. With logins, the users alice and bob have the password `pencil`.

Events, about ledger 7 unless `ledger=N` is given:
    create [as=NAME] [chain=NAME]            with this owner, for this chain
    hello NAME [login]                       the bookie's answer, with the principal that it knows;
                                             the client will log in
    NAME begin [as=USER] [password=TEXT] [mechanism=TEXT]
    NAME prove                               the messages of a login
    user NAME removed
    NAME add 0..4 [recovery]                 on the connection of this client, which stays
    NAME read 0..4 [fence] | lac | fence | write-lac N | list
    grant NAME ROLE LEDGERS | revoke NAME ROLE LEDGERS
    metadata-away | metadata-back | pass SECONDS

An action is an answer: the event of the request, a colon, and the bookie's answer. Every event
plays the transcript so far again from its beginning.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from typing_extensions import override  # `typing` has it from 3.12 on

from bookie.server.access import AuthorizerMode, LedgerAuthorizer, RoleOptions, ServerAccess
from bookie.server.client_logins import LoginMode, make_logins
from bookie.server.connection import follow_grants
from bookie.server.server_context import ServerContext
from bookie.server.server_limits import ServerCounters, ServerLimits
from bookie.wire import messages as m
from bookie.wire.messages import LOGIN_DUE
from metadata.cancelling import cancel_and_wait
from metadata.ids import BookieId, EntryId, LedgerId
from metadata.ledgers.chain import CHAIN_NAME
from metadata.ledgers.ledger_store import LedgerStore
from metadata.security.client_principals import parse_principals
from metadata.security.grant_store import GrantTable
from metadata.security.ledger_roles import parse_role
from metadata.security.user_store import UserStore
from quire.identity.principal import parse_mapping_rules
from quire.identity.sasl.credentials import ScramMechanism, new_credential
from quire.identity.sasl.mechanism import run_at_once
from quire.identity.sasl.scram import ScramClient
from quire.server.server_log import ServerLog
from tests.scenarios import words as w
from tests.scenarios.bookie_wire import Wire, batch_of, hello_of, request_of
from tests.simulation.loop import run_simulation, simulation_loop
from tests.support.bookie.manual_storage import ManualStorage
from tests.support.bookie.roles_setting import RolesSetting
from tests.support.metadata.scripted_faults import ScriptedFaults
from tests.support.sample_ledgers import open_ledger

SEED: Final = 11
SETTLE_S: Final = 0.5
KEY: Final = b"k" * 32
BOOKIE: Final = BookieId("bookie-1")
RULES: Final = parse_mapping_rules("RULE:CN=(.*)/$1/")
ANONYMOUS: Final = "anonymous"
USERS: Final = ("alice", "bob")
PASSWORD: Final = "pencil"
SCRAM: Final = ScramMechanism.SHA_256


class RolesPlayer:
    """One bookie, its clients, and the metadata service."""

    def __init__(self, setup: Mapping[str, str]) -> None:
        super_users = parse_principals(setup.get("super-users", ""))
        self._options = RoleOptions(AuthorizerMode(setup["authorizer"]), RULES, super_users)
        self._logins = LoginMode(setup.get("logins", LoginMode.OFF))
        self._events: list[Sequence[str]] = []

    def play(self, words: Sequence[str]) -> list[str]:
        self._events.append(words)
        return run_simulation(self._happen, SEED)

    async def _happen(self) -> list[str]:
        bookie = _Bookie(self._options, self._logins)
        following = await bookie.start()
        happened: list[str] = []
        for words in self._events:
            happened = await bookie.perform(words)
        await cancel_and_wait(following)
        await bookie.end()
        return happened


class _CertifiedWire(Wire):
    """A client with a certificate."""

    def __init__(self, context: ServerContext, lines: list[str], name: str) -> None:
        self._subject = name
        super().__init__(context, lines, name)

    @override
    def get_extra_info(self, name: str, default: object = None) -> object:
        if name == "peercert" and self._subject != ANONYMOUS:
            return {"subject": ((("commonName", self._subject),),)}
        return super().get_extra_info(name, default)


class _Bookie:
    """Performs the events of a transcript."""

    def __init__(self, options: RoleOptions, mode: LoginMode) -> None:
        self._faults = ScriptedFaults()
        self._roles = roles = RolesSetting(self._faults)
        ledgers, grants = (
            LedgerStore(roles.own, roles.rng, lambda: 0),
            GrantTable(roles.own, roles.rng),
        )
        self._authorizer = LedgerAuthorizer(ledgers, grants, roles.rng, options)
        self._logins = make_logins(roles.own, roles.rng, mode)
        self._exchanges: dict[str, ScramClient] = {}
        now = simulation_loop().time
        self._context = ServerContext(
            BOOKIE,
            ManualStorage(),
            ServerAccess(_no_key, now, self._logins),
            ServerLimits(),
            ServerCounters(),
            ServerLog(now),
            now,
            self._authorizer,
        )
        self._wires: dict[str, Wire] = {}
        self._attached: set[tuple[str, LedgerId]] = set()
        self._lines: list[str] = []

    async def start(self) -> "asyncio.Task[None]":
        await self._authorizer.start()
        if self._logins is not None:
            users = UserStore(self._roles.store, self._roles.rng)
            for name in USERS:
                await users.add(name, [new_credential(SCRAM, PASSWORD, self._roles.rng)])
            await self._logins.start()
        return asyncio.get_running_loop().create_task(follow_grants(self._context))

    async def end(self) -> None:
        self._faults.is_away = False
        await asyncio.sleep(SETTLE_S)
        await self._authorizer.aclose()
        if self._logins is not None:
            await self._logins.aclose()

    async def perform(self, words: Sequence[str]) -> list[str]:
        """Perform one event and its consequences; return the bookie's answers."""
        self._lines.clear()
        match words:
            case ["pass", seconds]:
                await asyncio.sleep(float(seconds))
            case ["metadata-away" | "metadata-back"]:
                self._faults.is_away = words[0] == "metadata-away"
            case ["create", *options]:
                await self._create(w.parse_options(options))
            case ["hello", name, *options]:
                features = LOGIN_DUE if options == ["login"] else 0
                self._wire_of(name, " ".join(words), features)
            case ["user", name, "removed"]:
                await UserStore(self._roles.store, self._roles.rng).remove(name)
            case [name, "begin" | "prove", *options]:
                await self._log_in(" ".join(words), name, words[1], w.parse_options(options))
            case ["grant" | "revoke", name, role, ledgers]:
                change = self._roles.grant if words[0] == "grant" else self._roles.revoke
                await change(f"User:{name}", parse_role(role), ledgers)
            case [name, *request]:
                self._ask(" ".join(words), name, request)
            case _:
                raise ValueError("an event has words")
        await asyncio.sleep(SETTLE_S)
        return list(self._lines)

    async def _create(self, options: Mapping[str, str]) -> None:
        ledger_id = int(options.get("ledger", w.LEDGER))
        chain = {CHAIN_NAME: options["chain"]} if "chain" in options else {}
        metadata = open_ledger("abc", ledger_id=ledger_id)
        owner = f"User:{options['as']}" if "as" in options else ""
        await self._roles.create(replace(metadata, owner=owner, custom=MappingProxyType(chain)))

    async def _log_in(self, label: str, name: str, what: str, options: Mapping[str, str]) -> None:
        wire = self._wires[name]
        if what == "begin":
            user, password = options.get("as", name), options.get("password", PASSWORD)
            exchange = ScramClient(SCRAM, user, password, f"nonce-of-{name}", run_at_once)
            self._exchanges[name] = exchange
            mechanism = options.get("mechanism", SCRAM.value)
            wire.ask(label, m.BeginLogin(mechanism, exchange.begin()))
            return
        message = await self._exchanges[name].respond(wire.sasl_message)
        wire.ask(label, m.ContinueLogin(message or b""))

    def _wire_of(self, name: str, label: str = "", features: int = 0) -> Wire:
        wire = self._wires.get(name)
        if wire is None or label:
            wire = self._wires[name] = _CertifiedWire(self._context, self._lines, name)
            wire.ask(label, replace(hello_of(BOOKIE, {}), features=features))
            self._attached = {each for each in self._attached if each[0] != name}
        return wire

    def _ask(self, label: str, name: str, words: Sequence[str]) -> None:
        wire, options = self._wire_of(name), w.parse_options(words[1:])
        ledger_id = LedgerId(int(options.get("ledger", w.LEDGER)))
        if (name, ledger_id) not in self._attached:
            self._attached.add((name, ledger_id))
            wire.ask("", m.AttachLedger(ledger_id, KEY))
        match words:
            case ["add", entries, *_]:
                batch = batch_of(ledger_id, entries, options)
                wire.add(label, batch, recovery="recovery" in options)
            case ["list", *_]:
                wire.ask(label, m.ListEntries(ledger_id, EntryId(0)))
            case _:
                wire.ask(label, request_of(ledger_id, words, options))


async def _no_key() -> None:
    return None
