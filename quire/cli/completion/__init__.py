"""`quire completion`: completion for shells.

- `verbs`: arguments.
- `scripts`: the script of a shell, from the parsers of all commands.
"""
