"""Metadata store: its interface, in memory, and over ZooKeeper.

- `interface`: versioned values in a tree, sessions and watches.
- `uri`: address of the metadata service.
- `memory`: store in one process; the reference meaning of the interface.
- `memory_server`: what its sessions share.
- `memory_tree`: meaning of every operation, without sessions.
- `memory_faults`: where tests and the simulation inject faults.
- `zookeeper/`: store over ZooKeeper, with kazoo.
- `session_clock`: state of a session by this process's own clock.
- `batching`: many compare-and-sets in one multi.
- `ephemeral`: one ephemeral node, kept from session to session.
- `election`: election of one process by such a node.
- `followed_value`: one node's value, followed.
- `value_changes`: a write, and one value's change, until it is certain.
- `records`: records of one kind, changed by compare-and-set and followed.
- `child_values`: nodes below one node, and their values.
- `child_names`: names of the nodes below one node.
- `number_blocks`: numbers that nothing else in the cluster gets.
- `tree_deletion`: deletion of nodes and trees, until it is certain.
- `embedded`: a real ZooKeeper as a child process.
- `embedded_java`: finds a Java and ZooKeeper's jars.
- `embedded_ports`: free ports on this machine.
- `embedded_supervisor`: kills a command when its parent is gone.
"""
