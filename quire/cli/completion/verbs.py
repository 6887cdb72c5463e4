"""Declaration of `quire completion` and its arguments.

Leaves the script to `scripts`, which is imported only when the command runs.
"""

import argparse
from typing import Final

from quire.cli.command_line import add_shared_options, later

SHELLS: Final = ("bash", "zsh", "fish")


def parser() -> argparse.ArgumentParser:
    """Return the parser of `quire completion`."""
    text = (
        "Print a script with which a shell completes nouns, verbs, options and file names. For "
        "bash: `quire completion bash > ~/.local/share/bash-completion/completions/quire`. For "
        "zsh: a file `_quire` in a directory of $fpath. For fish: "
        "`quire completion fish > ~/.config/fish/completions/quire.fish`."
    )
    command = argparse.ArgumentParser(prog="quire completion", description=text)
    add_shared_options(command, needs_cluster=False)
    command.add_argument("shell", choices=SHELLS, help="the shell")
    command.set_defaults(
        handler=later("quire.cli.completion.scripts", "print_script"),
        is_audited=False,
        act="completion",
    )
    return command
