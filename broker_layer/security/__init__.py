"""Security of a broker's clients.

- `acl_table`: what access control lists allow.
- `authorizer`: decisions for clients, with super users and a cache.
- `rights`: what one client may do.
- `guards/`: checks of each API before its handler.
"""
