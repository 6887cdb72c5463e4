"""Identities, and how they are proved.

- `principal`: who a client is.

Leaves what each principal may do to the servers, and storing users and rights to
`metadata.security`. Imports nothing of Quire.
"""
