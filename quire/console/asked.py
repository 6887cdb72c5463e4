"""Numbers that a request asks for.

Leaves the numbers in paths, and those that a page may leave out, to `paging.number_of`.

Invariant: a number that is there and wrong is refused, and never read as the default: a change
would do something else than was asked for.
"""

from collections.abc import Mapping

from aiohttp import web

from quire.console.paging import number_of

_ODD = -1


def asked_number(fields: Mapping[str, object], name: str, default: int, most: int) -> int:
    """Return a number of a query or a form, at most `most`; the default if it is not there or
    empty. Raises HTTPBadRequest for anything else.
    """
    text = str(fields.get(name, "")).strip()
    if not text:
        return default
    found = number_of(text, _ODD, most)
    if found == _ODD:
        raise web.HTTPBadRequest(text=f"{name} must be a whole number from 0 to {most}")
    return found
