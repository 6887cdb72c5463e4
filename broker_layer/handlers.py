"""Names what a family of APIs gives to the dispatcher: for each API key, what serves it.

Leaves calling them to `server.dispatch`, and what must be quicker than this to `server.exchange`.
"""

from collections.abc import Awaitable, Callable

from broker_layer.kafka.messages import ApiMessage
from broker_layer.request_context import RequestContext

Handler = Callable[[ApiMessage, RequestContext], Awaitable[ApiMessage | bytes]]
"""Takes a decoded request and gives the response, or its body in the request's version;
refusals are in it, not raised.
"""
