"""The noun `repair` of the command line.

- `verbs`: verbs and their arguments.
- `repair_manage`: what repair does, and what an operator changes of it.
"""
