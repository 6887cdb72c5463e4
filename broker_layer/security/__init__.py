"""Who a broker's clients are, and what they may do.

- `login_options`: whether the clients of a listener use TLS and logins, and options of logins.
- `authorizer`: rights of clients, by access control lists and super users.
- `guards`: what each API needs, and what a refused part of a request answers.
- `audited_handlers`: audit lines about requests that change a cluster.
- `client_admin`: APIs of the credentials of users, and of quotas.
- `quota_filters`: which quotas a description has.
"""
