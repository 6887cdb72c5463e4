"""Admin servers of bookies, as pages ask them.

Invariant: a server that did not answer in time is not asked again for SILENT_S, so that a bookie
that hangs delays one page and not each of them.
"""

import math
from collections.abc import Callable
from typing import Final
from urllib.parse import urlsplit

from quire.identity.client_file import ClientFile
from quire.operate.admin_api import AdminSilentError, get_json, get_text
from quire.operate.fields import Json

SILENT_S: Final = 10.0


class AdminServers:
    """Admin servers of one cluster."""

    def __init__(self, identity: ClientFile, now: Callable[[], float]) -> None:
        self._identity = identity
        self._now = now
        self._silent_until: dict[str, float] = {}

    async def get_json(self, url: str, timeout_s: float) -> Json:
        """Return the decoded response to a GET. Raises AdminApiError, SecurityError."""
        self._check(url)
        try:
            return await get_json(url, self._identity, timeout_s=timeout_s)
        except AdminSilentError:
            self._note(url)
            raise

    async def get_text(self, url: str, timeout_s: float) -> str:
        """Return the text of the response to a GET. Raises AdminApiError, SecurityError."""
        self._check(url)
        try:
            return await get_text(url, self._identity, timeout_s=timeout_s)
        except AdminSilentError:
            self._note(url)
            raise

    def _check(self, url: str) -> None:
        left_s = self._silent_until.get(urlsplit(url).netloc, 0.0) - self._now()
        if left_s > 0:
            text = f"{urlsplit(url).netloc} did not respond, and is asked again in"
            raise AdminSilentError(f"{text} {math.ceil(left_s)} s")

    def _note(self, url: str) -> None:
        now = self._now()
        left = {server: until for server, until in self._silent_until.items() if until > now}
        self._silent_until = {**left, urlsplit(url).netloc: now + SILENT_S}
