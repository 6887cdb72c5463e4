"""Audit trail of commands.

- `recording`: records a command that changes the metadata itself.
- `audit_list`: `quire metadata audit`.
"""
