"""Which requests a console serves: by their host, their origin, their method and their form. Pure.

Invariants: a page of another site cannot read the console through a name that leads to its address
(the host is checked), and cannot change anything with the user's cookie (the origin and the form's
token are checked, and the cookie is for this site alone).
"""

import re
from collections.abc import Collection
from typing import Final
from urllib.parse import urlsplit

READING: Final = ("GET", "HEAD")
"""Methods that change nothing."""
LOCAL_HOSTS: Final = ("localhost", "127.0.0.1", "::1")
HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; connect-src 'self'; font-src 'self'; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""Headers of each answer: nothing is loaded from elsewhere, no page frames this one, and no script
or style is written in a page. With the referrer policy `no-referrer`, browsers would send
`Origin: null` with each form.
"""
BASE_PATH_RULE: Final = "write a path such as /quire, without a slash at its end"
_BASE_PATH: Final = re.compile(r"(/[A-Za-z0-9._~-]+)*")


def is_base_path(text: str) -> bool:
    """Return whether a text is a path for a console below a proxy; empty is one."""
    return _BASE_PATH.fullmatch(text) is not None


def host_name(host_header: str) -> str | None:
    """Return the name or address in a `Host` header, in lower case; None if it is none."""
    try:
        parts = urlsplit(f"//{host_header}")
        _ = parts.port  # raises for a port that is no number
    except ValueError:
        return None
    if parts.path or parts.query or parts.fragment or parts.username is not None:
        return None
    return parts.hostname


def is_known_host(host_header: str, listening: str, names: Collection[str]) -> bool:
    """Return whether a browser that sends this header reached the console by a name of its own."""
    name = host_name(host_header)
    return name is not None and (name in LOCAL_HOSTS or name == listening.lower() or name in names)


def is_own_origin(origin: str | None, host_header: str) -> bool:
    """Return whether a request comes from a page of this console. A client without an origin is no
    browser.
    """
    if origin is None:
        return True
    try:
        return urlsplit(origin).netloc.lower() == host_header.lower()
    except ValueError:
        return False


def is_own_path(path: str) -> bool:
    """Return whether a path that a form names leads to a page of this console."""
    return path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable()
