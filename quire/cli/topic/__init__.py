"""The noun `topic` of the command line.

- `verbs`: verbs and their arguments.
- `topic_manage`: `create`, `list`, `show`, `grow`, `config`, `elect`, `trim` and `delete`.
- `topic_data`: `produce` and `consume`.
"""
