"""The noun `user` of the command line.

- `verbs`: verbs and their arguments.
- `user_admin`: `add`, `password`, `remove`, `list` and `show`.
- `password_source`: where a password comes from.
"""
