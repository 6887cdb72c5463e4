"""Differential cases: versions and frames that brokers do not serve."""

import struct
from typing import Final

from tests.differential.run import Run
from tests.differential.wire import bare_request, encode_request

API_VERSIONS: Final = ("ApiVersions", 18)
UNKNOWN_KEY: Final = 999
FAR_VERSION: Final = 99
SERVED: Final = (0, 1, 2, 3, 8, 9, 10, 11, 12, 13, 14, 19, 20, 22, 24, 26, 68)
"""Keys whose versions are tried, both served and unserved ones."""
NOT_FOR_CLIENTS: Final = (4, 5, 6, 7)
"""Keys of Kafka's former controllers, which no broker serves any more."""


async def api_versions(run: Run) -> None:
    """ApiVersions, whose unknown versions are answered, unlike any other's."""
    for version in range(5):
        names = {"client_software_name": "differential", "client_software_version": "1"}
        values = names if version > 2 else {}
        without = ["api_keys"]
        await run.ask(
            f"version/ApiVersions {version}", API_VERSIONS, version, values, without=without
        )
    for name, software in {"no software name": "", "wrong software name": "a b/"}.items():
        wrong = {"client_software_name": software, "client_software_version": "1"}
        await run.send_bare(f"versions/{name}", encode_request("ApiVersions", 3, wrong))
    no_tags = b"\0"
    frame = bare_request(API_VERSIONS[1], FAR_VERSION, no_tags)
    await run.send_bare("versions/ApiVersions 99", frame)


async def unserved(run: Run) -> None:
    """Keys, versions and frames that end a connection."""
    for key in SERVED:
        await run.send_unserved(f"unserved/version {FAR_VERSION} of {key}", key, FAR_VERSION)
        await run.send_unserved(f"unserved/negative version of {key}", key, -1)
    for key in (*NOT_FOR_CLIENTS, UNKNOWN_KEY, -1):
        await run.send_unserved(f"unserved/key {key}", key, 0)
    frames = {
        "negative size": struct.pack(">i", -1),
        "size beyond any limit": struct.pack(">i", 2**31 - 1) + b"x" * 100,
        "empty frame": struct.pack(">i", 0),
        "half a header": struct.pack(">i", 3) + b"abc",
        "cut body": bare_request(3, 9, b"\x05"),
        "count beyond the frame": bare_request(3, 0, struct.pack(">i", 10**6)),
        "negative string": bare_request(10, 0, struct.pack(">h", -7)),
        "another protocol": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    }
    for name, frame in frames.items():
        await run.send_bare(f"frame/{name}", frame)


CASES: Final = (api_versions, unserved)
