"""Security of a cluster that its metadata holds.

- `acls`: bindings of access control lists, their filters, and their bytes.
- `acl_store`: bindings in the store: added, removed, listed and followed.
- `errors`: refusals of bindings.
"""
