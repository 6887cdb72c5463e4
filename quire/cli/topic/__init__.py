"""The noun `topic` of the command line.

- `verbs`: verbs and their arguments.
- `topic_manage`: `create`, `list`, `show`, `grow`, `config`, `elect` and `delete`.
- `topic_data`: `produce` and `consume`.
- `topic_trim`: `trim`.
- `missing_answers`: remark of `produce` when nothing is acknowledged.
- `topic_access`: brokers that a verb asks.
"""
