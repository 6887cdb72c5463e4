"""The noun `grant` of the command line.

- `verbs`: verbs and their arguments.
- `grant_admin`: `add`, `remove` and `list`.
"""
