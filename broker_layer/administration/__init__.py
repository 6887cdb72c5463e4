"""Administration APIs: metadata, topics, settings and elections.

- `topic_admin_handlers`: handlers for each API key.
- `topic_metadata_answers`: Metadata.
- `cluster_answers`: DescribeCluster, FindCoordinator and DescribeLogDirs.
- `topic_admin`: CreateTopics, DeleteTopics and CreatePartitions.
- `mutation_quota`: quota of changes of topics.
- `topic_partition_answers`: DescribeTopicPartitions.
- `config_admin`: DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources.
- `shown_configs`: settings as Kafka's tools expect them.
- `acl_admin`: DescribeAcls, CreateAcls and DeleteAcls.
- `leader_elections`: ElectLeaders, preferred and unclean.
- `reassignments`: AlterPartitionReassignments, ListPartitionReassignments.
- `moving_ledgers`: partitions whose ledgers repair copies or moves.
- `spreading`: wait until every live broker shows a change.
"""
