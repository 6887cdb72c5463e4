"""Requests of any API to a broker, from the fields of their messages."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from kafka.protocol.consumer import FetchResponse
from kafka.protocol.producer import ProduceResponse

from broker_layer.kafka.messages import decode_response, encode_request, request_class
from broker_layer.kafka.versions import ADVERTISED, ApiKey
from tests.support.broker_layer.served_broker import Client

# Messages are built from schemas when they are imported, so their fields have no types.
Message = Any
Values = Mapping[str, object]


class Call(NamedTuple):
    """One request: its fields, or its body."""

    key: ApiKey
    fields: Values | bytes

    def send(self, client: Client) -> None:
        version, body = self.version, self.fields
        if not isinstance(body, bytes):
            body = bytes(encode_request(made(request_class(self.key), body), version))
        client.send(self.key, version, body)

    async def answer(self, client: Client) -> Message:
        body = await client.body()
        if self.key == ApiKey.PRODUCE:
            return ProduceResponse.decode(body, version=self.version)
        if self.key == ApiKey.FETCH:
            return FetchResponse.decode(body, version=self.version)
        return decode_response(self.key, self.version, body)

    async def ask(self, client: Client) -> Message:
        self.send(client)
        return await self.answer(client)

    @property
    def version(self) -> int:
        return {ApiKey.FETCH: 12, ApiKey.PRODUCE: 9}.get(self.key, ADVERTISED[self.key].max)


def made(kind: Message, values: Values) -> Message:
    """Return a message, or a part of one, with these fields."""
    parts = dict[str, object]()
    for name, value in values.items():
        inner = getattr(kind.fields[name], "data_class", None)
        rows = value if isinstance(value, list) and inner is not None else None
        parts[name] = value if rows is None else [made(inner, row) for row in rows]
    return kind(**parts)


def only(rows: Sequence[Message]) -> Message:
    (row,) = rows
    return row
