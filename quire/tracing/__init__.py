"""Spans of OpenTelemetry: what became of a batch, and how long it took. Off unless turned on.

- `spans`: what the code records, and where it goes.
- `exporting`: OpenTelemetry's packages, set up by their standard variables.
"""
