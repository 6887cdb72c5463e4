"""The `quire` command: one module per noun, imported only when its noun is given.

- `main`: finds the noun, runs the verb, returns the exit status.
- `command_line`: nouns and verbs for argparse, with shared options.
- `output`: tables for people, JSON for programs.
- `as_json`: metadata as JSON.
- `progress`: progress of long work.
- `standard_input`: standard input, cut into entries.
- `server_options`: one flag for each option of a server.
- `up`: `quire up`.
- `up_options`: options of servers that `quire up` passes on.
- `demo`: `quire demo`.
- `broker`: `quire broker`: arguments.
- `broker_server`: `quire broker run`.
- `chain`: `quire chain`.
- `cluster`: `quire cluster`.
- `cluster_loss`: `quire cluster if-lost`.
- `cluster_version`: `quire cluster version`.
- `ledger_reading`: metadata of every ledger, with progress.
- `config`: `quire config`.
- `spark`: `quire spark`.
- `bench`: `quire bench compare` and `report`.
- `fleet`: `quire bench fleet`.
- `quantities`: byte rates and durations as people write them.
- `bookie/`: `quire bookie`.
- `repair/`: `quire repair`.
- `metadata/`: `quire metadata`.
- `ledger/`: `quire ledger`.
- `topic/`: `quire topic`.
"""
