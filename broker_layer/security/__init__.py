"""Who a broker's clients are.

- `protocols`: whether the clients of a listener use TLS and logins.
- `listener_access`: how one listener takes connections.
- `user_handlers`: DescribeUserScramCredentials and AlterUserScramCredentials.
"""
