"""Model of repair: one ledger, its bookies, workers, the auditor, an operator and the collectors.

Modules:

- `words`: the parameters of a scope, and the parts of a world.
- `worlds`: the start, the steps and the checks of a scope, for `tests.model.search`.
- `worker_steps`: the steps of workers.
- `other_steps`: the steps of bookies, the auditor, operators, collectors and a writer.
- `rules`: what must be true of a step, of every world, and of a world without steps left.
- `scopes`: the configurations.
- `bugs`: the seeded bugs.
"""
