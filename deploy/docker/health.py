"""Ask the admin port of the server in this container whether it is ready; end with status 0 or 1.

The address is in QUIRE_HEALTH_URL. The certificate is not verified: the connection does not leave
the container, and the request has no secret.
"""

import http.client
import os
import ssl
import sys
from typing import Final
from urllib.parse import urlsplit

URL_DEFAULT: Final = "https://127.0.0.1:8080/readyz"
TIMEOUT_S: Final = 4.0


def main() -> int:
    """Print what the server answers, or why it does not."""
    url = urlsplit(os.environ.get("QUIRE_HEALTH_URL", URL_DEFAULT))
    host, port = url.hostname or "127.0.0.1", url.port
    connection: http.client.HTTPConnection
    if url.scheme == "https":
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        connection = http.client.HTTPSConnection(host, port, timeout=TIMEOUT_S, context=context)
    else:
        connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)
    try:
        connection.request("GET", url.path)
        answer = connection.getresponse()
        sys.stdout.write(answer.read().decode(errors="replace"))
    except (OSError, http.client.HTTPException) as error:
        sys.stderr.write(f"{url.geturl()} does not answer: {error}\n")
        return 1
    return 0 if answer.status == http.client.OK else 1


if __name__ == "__main__":
    sys.exit(main())
