"""Who a broker's clients are.

- `protocols`: whether the clients of a listener use TLS and logins.
- `login_options`: options of logins.
- `served_logins`: listeners' security, put together from the options.
- `logins`: logins of clients by SASL.
- `peer_login`: login of a broker at another.
- `listener_access`: how one listener takes connections.
- `user_handlers`: DescribeUserScramCredentials and AlterUserScramCredentials.
"""
