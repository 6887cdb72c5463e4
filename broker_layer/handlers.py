"""Type of request handlers, which a family of APIs gives to the dispatcher by API key.

Leaves calling them to `server.dispatch`, and the type of faster handlers to `server.exchange`.
"""

from collections.abc import Awaitable, Callable

from broker_layer.kafka.messages import ApiMessage
from broker_layer.request_context import RequestContext

Handler = Callable[[ApiMessage, RequestContext], Awaitable[ApiMessage | bytes]]
"""Takes a decoded request; returns the response, or its body encoded in the request's version. A
refusal is part of the response and is not raised.
"""
