"""The noun `ledger` of the command line.

- `verbs`: verbs and their arguments.
- `ledger_manage`: `create`, `list`, `show`, `recover`, `verify` and `delete`.
- `ledger_data`: `append`, `read`, `tail`, `export` and `import`.
- `ledger_loss`: `accept-loss`.
"""
