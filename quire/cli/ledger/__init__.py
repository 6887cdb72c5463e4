"""The noun `ledger` of the command line.

- `verbs`: verbs and their arguments.
- `ledger_manage`: `create`, `list`, `show`, `recover` and `delete`.
- `ledger_data`: `append`, `read` and `tail`.
- `ledger_copy`: `export` and `import`.
- `ledger_verify`: `verify`.
- `ledger_loss`: `accept-loss`.
- `ledger_options`: options of these verbs, for the client.
"""
