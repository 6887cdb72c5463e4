"""The noun `acl` of the command line.

- `verbs`: verbs and their arguments.
- `acl_lists`: `add`, `list` and `remove`.
"""
