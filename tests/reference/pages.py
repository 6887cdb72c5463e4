"""Names every generated page and what makes it."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from tests.reference.command_line import command_line_page
from tests.reference.errors import errors_page
from tests.reference.log import log_page
from tests.reference.metadata import metadata_page
from tests.reference.metrics import metrics_page
from tests.reference.options import options_page
from tests.reference.python_api import python_api_page
from tests.reference.seeded_bugs import seeded_bugs_page

DIRECTORY: Final = Path(__file__).parents[2] / "docs" / "reference"
MAN_DIRECTORY: Final = DIRECTORY.parent / "man"
PAGES: Final[Mapping[str, Callable[[], str]]] = {
    "command-line.md": command_line_page,
    "options.md": options_page,
    "metadata.md": metadata_page,
    "metrics.md": metrics_page,
    "log.md": log_page,
    "errors.md": errors_page,
    "python-api.md": python_api_page,
    "seeded-bugs.md": seeded_bugs_page,
}
