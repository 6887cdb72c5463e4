"""How listeners take clients.

- `listener_access`: how one listener takes connections.
- `logins`: logins of clients by SASL.
- `served_logins`: listeners' security, put together from the options.
"""
