"""Users, quotas, roles on ledgers, and rights of processes on the stored nodes.

- `errors`: what can go wrong with users, quotas and grants.
- `users`: a user, its credentials and its bytes.
- `user_store`: users, changed, listed and followed.
- `user_decoys`: decoys of unknown users.
- `quotas`: a quota, its values and its bytes.
- `quota_store`: quotas, changed, listed and followed.
- `quota_set`: quotas in memory.
- `client_principals`: principals of certificates, and super users.
- `ledger_roles`: roles on ledgers, and the rights that they give; pure.
- `ledger_grants`: grants of one principal and their bytes; pure.
- `grant_store`: grants, changed, listed and followed.
- `rights_record`: who the servers and clients are, as stored.
- `followed_rights`: rights of the nodes that one store creates.
- `securing`: rights of existing nodes, set one by one.
- `access_errors`: errors of rights.
- `audit_trail`: the commands that changed the metadata, in the store.
- `acls`: bindings of access control lists, their filters, and their bytes.
- `acl_store`: bindings in the store: added, removed, listed and followed.
- `acl_errors`: refusals of bindings.
- `rates/`: rates of clients under quotas.
"""
