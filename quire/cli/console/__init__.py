"""`quire console`.

- `verbs`: arguments.
- `console_server`: the console in this process.
"""
