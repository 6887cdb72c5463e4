"""Pictures of the console in the documents: `python -m tests.browser.screenshots` writes them.

Leaves the cluster to `sample_cluster`, without its hostile names.

Format: PNG with at most COLOURS colours, so that each file has at most BYTES_MAX bytes.
"""

import asyncio
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from PIL import Image

from tests.browser.chromium import chromium_path, open_chromium
from tests.browser.running_console import running_console
from tests.browser.sample_cluster import TOPIC, SampleCluster, sample_cluster
from tests.browser.watched_page import Scheme, WatchedPage, watched_page

DIRECTORY: Final = Path(__file__).parents[2] / "docs" / "images"
COLOURS: Final = 160
BYTES_MAX: Final = 80_000
WIDTH: Final = 1_200
CHECK_S_MAX: Final = 60.0
POLL_MS: Final = 500


@dataclass(frozen=True, slots=True)
class Picture:
    """One picture."""

    name: str
    path: str
    height: int
    scheme: Scheme = "light"


def pictures(sample: SampleCluster) -> tuple[Picture, ...]:
    """Return the pictures of the documents."""
    return (
        Picture("console-cluster", "/", 612),
        Picture("console-ledger", f"/ledgers/{sample.short}?fragment=0&at=850", 995),
        Picture("console-ledger-dark", f"/ledgers/{sample.changed}", 790, "dark"),
        Picture("console-topic", f"/topics/{TOPIC}", 715),
        Picture("console-repair", "/repair", 850),
    )


async def write_pictures() -> None:
    """Write all pictures."""
    path = chromium_path()
    assert path is not None, "no Chromium: install the package chromium"
    DIRECTORY.mkdir(exist_ok=True)
    async with (
        open_chromium(path) as browser,
        sample_cluster(hostile=()) as sample,
        running_console(sample.cluster.metadata_uri, "--survey-every-s", "1") as console,
    ):
        for picture in pictures(sample):
            size = (WIDTH, picture.height)
            async with watched_page(browser, console, scheme=picture.scheme, size=size) as window:
                await _wait_for_check(window)
                await window.open(picture.path)
                small = quantised(await window.page.screenshot())
            assert len(small) <= BYTES_MAX, f"{picture.name} has {len(small)} bytes"
            (DIRECTORY / f"{picture.name}.png").write_bytes(small)


async def _wait_for_check(window: WatchedPage) -> None:
    async with asyncio.timeout(CHECK_S_MAX):
        await window.open("/")
        while "Checked " not in await window.text():
            await window.page.wait_for_timeout(POLL_MS)
            await window.open("/")


def quantised(png: bytes) -> bytes:
    """Return a picture with few colours."""
    output = io.BytesIO()
    picture = Image.open(io.BytesIO(png)).convert("RGB")
    few = picture.quantize(COLOURS, dither=Image.Dither.NONE)
    few.save(output, "PNG", optimize=True)
    return output.getvalue()


if __name__ == "__main__":
    asyncio.run(write_pictures())
