"""Declaration of the verbs of `quire metadata` and their arguments.

Leaves the work to `metadata_check`, `metadata_dump`, `metadata_restore` and `metadata_compare`.
"""

import argparse

from quire.cli.command_line import Noun, add_consent_option, later

RESTORE = "quire.cli.metadata.metadata_restore"


def parser() -> argparse.ArgumentParser:
    """Return the parser of `quire metadata`."""
    noun = Noun("metadata", "The stored metadata of the cluster.")
    noun.verb(
        "dump",
        later("quire.cli.metadata.metadata_dump", "dump"),
        "print everything that a restore needs, one JSON object per line",
    )
    restore = noun.verb(
        "restore",
        later(RESTORE, "restore"),
        "write a dump into an empty address, and make it the cluster of that dump",
    )
    restore.add_argument("file", metavar="FILE", help="output of `quire metadata dump`")
    add_consent_option(restore)
    noun.verb(
        "compare",
        later("quire.cli.metadata.metadata_compare", "compare"),
        "list what bookies hold and the metadata does not know; status 1 if there is anything",
    )
    accept = noun.verb(
        "accept-restore",
        later(RESTORE, "accept"),
        "remove again what the restored metadata does not know",
    )
    add_consent_option(accept)
    noun.verb(
        "check",
        later("quire.cli.metadata.metadata_check", "check"),
        "read every record and compare them; status 1 if any is wrong",
    )
    return noun.parser
