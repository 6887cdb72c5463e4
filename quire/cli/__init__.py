"""The `quire` command: modules for each noun, imported only when it is given.

- `main`: finds the noun, runs the verb, returns the exit status.
- `command_line`: nouns and verbs for argparse, with shared options and types of arguments.
- `output`: tables for people, JSON for programs.
- `progress`: progress of long work, such as a pass over all ledgers.
- `audit`: audit trail of commands, and `quire metadata audit`.
- `servers`: `quire broker`, `gateway`, `console` and `zookeeper`, and options of servers as flags.
- `config`: `quire config`.
- `up`: `quire up`.
- `demo`: `quire demo`.
- `tls`: `quire tls`.
- `ledger/`: `quire ledger`.
- `chain`: `quire chain`.
- `spark`: `quire spark`.
- `bookie/`: `quire bookie`.
- `repair/`: `quire repair`.
- `topic/`: `quire topic`.
- `metadata/`: `quire metadata`.
- `cluster`: `quire cluster`.
- `top`: `quire top`.
- `rights`: `quire acl`, `user`, `grant` and `quota`.
- `rights_verbs`: their arguments.
- `completion`: `quire completion`.
- `bench`: `quire bench`.
"""
