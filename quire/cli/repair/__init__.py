"""The noun `repair` of the command line.

- `verbs`: verbs and their arguments.
- `repair_settings`: `throttle`, `pause`, `resume` and `settings`.
- `repair_status`: `status`.
- `repair_jobs`: `list` and `run`.
- `repair_scrub`: `scrub`.
- `repair_explanation`: `explain`.
- `repair_server`: `run-auditor` and `run-worker`.
"""
