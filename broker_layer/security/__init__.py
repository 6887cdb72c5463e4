"""Who a broker's clients are, and what they may do.

- `protocols`: whether the clients of a listener use TLS and logins.
- `login_options`: options of logins.
- `peer_login`: login of a broker at another.
- `user_handlers`: DescribeUserScramCredentials and AlterUserScramCredentials.
- `quota_handlers`: DescribeClientQuotas and AlterClientQuotas.
- `quota_filters`: which quotas a description has.
- `acl_table`: what access control lists allow.
- `authorizer`: decisions for clients, with super users and a cache.
- `audited_handlers`: audit lines about requests that change a cluster.
- `rights`: what one client may do.
- `guards`: what each API needs, and what a refused part of a request answers.
"""
