"""Administration APIs: metadata, topics, settings and elections.

- `topic_admin_handlers`: handlers for each API key.
- `topic_metadata_answers`: Metadata.
- `cluster_answers`: DescribeCluster, FindCoordinator and DescribeLogDirs.
- `topic_admin`: CreateTopics, DeleteTopics and CreatePartitions.
- `config_admin`: DescribeConfigs, AlterConfigs and IncrementalAlterConfigs.
- `shown_configs`: settings as Kafka's tools expect them.
- `leader_elections`: ElectLeaders, preferred and unclean.
- `spreading`: wait until every live broker shows a change.
"""
