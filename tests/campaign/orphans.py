"""End of a child process of a test when its parent ends in any way.

Leaves the orderly end to the child. The parent holds the other end of the child's standard input.
"""

import asyncio
import os
import sys


def end_with_parent() -> None:
    """Watch standard input on the running loop; end this process at once when it closes."""

    def look() -> None:
        if not os.read(sys.stdin.fileno(), 1024):
            os._exit(1)

    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), look)
