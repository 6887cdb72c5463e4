"""Dispatch of requests to their handlers, and encoding of the answers.

Leaves the meaning of requests to the handlers, and the order of answers to `connections`.

Invariants: every request of a served version is answered, or its connection is closed with a line
in the log; only the connections limit the number of concurrent requests. A request
is timed only while some client has a quota of its time.
"""

import re
from collections.abc import Mapping
from typing import Final

from broker_layer.handlers import Handler, Turns
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.frames import Buffer
from broker_layer.kafka.messages import (
    ApiMessage,
    ApiVersionsRequest,
    SaslAuthenticateResponse,
    SaslHandshakeResponse,
    answer_pieces,
    api_versions_response,
    decode_request,
    encode_response,
    note_throttle,
    refuse_api_versions,
    refuse_software_name,
)
from broker_layer.kafka.versions import ADVERTISED, BROKERS_ASK_FROM, ApiKey
from broker_layer.server.exchange import Exchange, RawHandler, RequestTasks
from broker_layer.server.quotas import ClientQuotas
from broker_layer.server.server_limits import BrokerCounters

FOR_BROKERS: Final = (ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.WRITE_TXN_MARKERS)
"""APIs for brokers; of the first, only some versions: see `_is_for_brokers`."""
GUARDED_EVERYWHERE: Final = (ApiKey.WRITE_TXN_MARKERS,)
"""APIs of brokers that administrators may use too: with an authorizer, each listener serves them,
because their guards decide about each client.
"""
LOGIN_REFUSALS: Final[Mapping[int, ApiMessage]] = {
    ApiKey.SASL_HANDSHAKE: SaslHandshakeResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[]
    ),
    ApiKey.SASL_AUTHENTICATE: SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        error_message="this listener has no logins: use another one, or another security.protocol",
        auth_bytes=b"",
        session_lifetime_ms=0,
    ),
}
"""Answers to logins on listeners without them; the others answer before a request comes here."""
SOFTWARE_NAMED_FROM: Final = 3
"""First version of ApiVersions with the name of the client's software (KIP-511)."""
SOFTWARE_NAME: Final = re.compile(r"[a-zA-Z0-9]([a-zA-Z0-9.-]*[a-zA-Z0-9])?")


class Dispatcher:
    """Serves requests from two tables of handlers, of which one encodes its own answers; belongs to
    one event loop.
    """

    def __init__(
        self,
        raw_handlers: Mapping[int, RawHandler],
        handlers: Mapping[int, Handler],
        tasks: RequestTasks,
        counters: BrokerCounters,
        quotas: ClientQuotas,
        peer_listener: str,
        *,
        is_guarded: bool,
    ) -> None:
        """Use the given handler for each API; ApiVersions is served here.

        APIs for brokers are served only on `peer_listener`, unless `is_guarded` says that the
        handlers have guards, and the API is one of `GUARDED_EVERYWHERE`.
        """
        assert not any(key in raw_handlers for key in FOR_BROKERS), "they would serve all listeners"
        self._peer_listener = peer_listener
        self._served_everywhere = GUARDED_EVERYWHERE if is_guarded else ()
        self._raw_handlers = raw_handlers
        self._handlers = handlers
        self._counters = counters
        self._quotas = quotas
        self._tasks = tasks

    def serve(self, exchange: Exchange) -> None:
        """Begin to serve a request."""
        is_for_brokers = _is_for_brokers(exchange)
        is_at_peers = exchange.requester.listener == self._peer_listener
        is_of_broker = is_for_brokers and is_at_peers
        if self._quotas.work.is_limited and exchange.work is None and not is_of_broker:
            self._serve_timed(exchange)
            return
        self._counters.note_request(exchange.api_key)
        raw = self._raw_handlers.get(exchange.api_key)
        if raw is not None:
            raw(exchange)
        elif is_for_brokers and not is_at_peers and exchange.api_key not in self._served_everywhere:
            why = f"API {int(exchange.api_key)} is only served on the listener of brokers"
            exchange.requester.drop("not served", why)
        elif exchange.api_key == ApiKey.API_VERSIONS:
            _answer_versions(exchange)
        elif exchange.api_key in LOGIN_REFUSALS:
            refusal = LOGIN_REFUSALS[exchange.api_key]
            exchange.answer([encode_response(refusal, exchange.api_version)])
        else:
            handler = self._handlers.get(exchange.api_key)
            if handler is None:
                exchange.requester.drop("not served", f"API {exchange.api_key} has no handler")
                return
            self._tasks.run(exchange, self._answer(exchange, handler))

    def _serve_timed(self, exchange: Exchange) -> None:
        work = self._quotas.begin_timing(exchange)
        work.begin()
        try:
            self.serve(exchange)
        finally:
            work.end()

    async def _answer(self, exchange: Exchange, handler: Handler) -> None:
        version = exchange.api_version
        request = decode_request(exchange.api_key, version, exchange.body)
        turns = Turns()
        response = await handler(request, exchange.context)
        await turns.pass_on()
        throttle_s = self._quotas.record_answer(exchange, response)
        if throttle_s and not isinstance(response, bytes):
            note_throttle(response, throttle_s)
        body = list[Buffer]()
        if isinstance(response, bytes):
            body.append(response)
        else:
            for piece in answer_pieces(response, version):
                body.append(piece)
                await turns.pass_on()
        exchange.answer(body)
        if throttle_s:
            exchange.requester.throttle(throttle_s)


def _is_for_brokers(exchange: Exchange) -> bool:
    if exchange.api_key == ApiKey.ADD_PARTITIONS_TO_TXN:
        return exchange.api_version >= BROKERS_ASK_FROM
    return exchange.api_key == ApiKey.WRITE_TXN_MARKERS


def _answer_versions(exchange: Exchange) -> None:
    version = exchange.api_version
    if ADVERTISED[ApiKey.API_VERSIONS].serves(version):
        request = decode_request(exchange.api_key, version, exchange.body)
        assert isinstance(request, ApiVersionsRequest)
        names = request.client_software_name, request.client_software_version
        if version >= SOFTWARE_NAMED_FROM and not all(map(_is_software_name, names)):
            exchange.answer([refuse_software_name(version)])
        else:
            exchange.answer([api_versions_response(version)])
    else:
        exchange.answer([refuse_api_versions()])


def _is_software_name(name: str | None) -> bool:
    return SOFTWARE_NAME.fullmatch(name or "") is not None
