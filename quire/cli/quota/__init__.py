"""The noun `quota` of the command line.

- `verbs`: verbs and their arguments.
- `quota_admin`: `set`, `list` and `remove`.
"""
