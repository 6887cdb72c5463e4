"""Administration APIs: metadata, topics, settings and elections.

- `topic_admin_handlers`: handlers for each API key.
- `cluster_answers`: Metadata, DescribeTopicPartitions, DescribeCluster, FindCoordinator and
  DescribeLogDirs.
- `topic_admin`: CreateTopics, DeleteTopics and CreatePartitions, and their quota.
- `config_admin`: DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources.
- `shown_configs`: settings as Kafka's tools expect them.
- `acl_admin`: DescribeAcls, CreateAcls and DeleteAcls.
- `leader_elections`: ElectLeaders, preferred and unclean.
- `reassignments`: AlterPartitionReassignments, ListPartitionReassignments.
- `spreading`: wait until every live broker shows a change.
"""
