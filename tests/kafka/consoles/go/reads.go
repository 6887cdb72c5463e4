package main

// Reads that pages of both tools make.

import (
	"context"
	"fmt"
	"sort"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func keys(needs ...kmsg.Key) []int16 {
	found := make([]int16, len(needs))
	for index, each := range needs {
		found[index] = each.Int16()
	}
	return found
}

func place(topic string, partition int32) string { return fmt.Sprintf("%s-%d", topic, partition) }

// overview reads the metadata, and finds the status of the cluster as Redpanda Console does: brokers that are named as
// replicas are expected to be online.
func (r *replay) overview(page string) {
	r.call(page, "Metadata", keys(kmsg.Metadata), func(ctx context.Context) (figures, error) {
		found, err := r.admin.Metadata(ctx)
		if err != nil {
			return nil, err
		}
		expected, partitions, short, leaderless := map[int32]bool{}, 0, 0, 0
		for _, id := range found.Brokers.NodeIDs() {
			expected[id] = true
		}
		found.Topics.EachPartition(func(each kadm.PartitionDetail) {
			partitions++
			if each.Leader < 0 {
				leaderless++
			}
			if len(each.ISR) < len(each.Replicas) {
				short++
			}
			for _, id := range each.Replicas {
				expected[id] = true
			}
		})
		return figures{
			"cluster": found.Cluster, "controller": found.Controller, "brokers": found.Brokers.NodeIDs(),
			"brokers_expected": len(expected), "topics": len(found.Topics), "partitions": partitions,
			"partitions_short": short, "partitions_without_leader": leaderless,
		}, found.Topics.Error()
	})
}

// logDirs reads the sizes of a topic's partitions, summed over all brokers, and of each broker.
func (r *replay) logDirs(page, topic string) {
	r.call(page, "DescribeLogDirs", keys(kmsg.DescribeLogDirs), func(ctx context.Context) (figures, error) {
		found, err := r.admin.DescribeAllLogDirs(ctx, nil)
		if err != nil {
			return nil, err
		}
		sizes, brokers, directories := map[string]int64{}, map[string]int64{}, 0
		var first error
		found.Each(func(each kadm.DescribedLogDir) {
			directories++
			if first == nil {
				first = each.Err
			}
			brokers[fmt.Sprint(each.Broker)] += each.Size()
			each.Topics.Each(func(partition kadm.DescribedLogDirPartition) {
				if partition.Topic == topic {
					sizes[place(topic, partition.Partition)] += partition.Size
				}
			})
		})
		return figures{"directories": directories, "sizes": sizes, "brokers": brokers}, first
	})
}

func (r *replay) brokerConfigs(page string) {
	r.call(page, "DescribeConfigs of brokers", keys(kmsg.DescribeConfigs), func(ctx context.Context) (figures, error) {
		brokers, err := r.admin.ListBrokers(ctx)
		if err != nil {
			return nil, err
		}
		found, err := r.admin.DescribeBrokerConfigs(ctx, brokers.NodeIDs()...)
		return settings(found, err)
	})
}

func (r *replay) topicConfigs(page, topic string) {
	r.call(page, "DescribeConfigs of a topic", keys(kmsg.DescribeConfigs), func(ctx context.Context) (figures, error) {
		found, err := r.admin.DescribeTopicConfigs(ctx, topic)
		return settings(found, err)
	})
}

func settings(found kadm.ResourceConfigs, err error) (figures, error) {
	if err != nil {
		return nil, err
	}
	all := figures{}
	for _, resource := range found {
		if resource.Err != nil {
			return nil, resource.Err
		}
		values := map[string]string{}
		for _, each := range resource.Configs {
			values[each.Key] = each.MaybeValue()
		}
		all[resource.Name] = values
	}
	return all, nil
}

func (r *replay) offsets(page, topic string) {
	r.call(page, "ListOffsets", keys(kmsg.ListOffsets), func(ctx context.Context) (figures, error) {
		starts, err := r.admin.ListStartOffsets(ctx, topic)
		if err != nil {
			return nil, err
		}
		ends, err := r.admin.ListEndOffsets(ctx, topic)
		if err != nil {
			return nil, err
		}
		first, end := map[string]int64{}, map[string]int64{}
		starts.Each(func(each kadm.ListedOffset) { first[place(topic, each.Partition)] = each.Offset })
		ends.Each(func(each kadm.ListedOffset) { end[place(topic, each.Partition)] = each.Offset })
		if starts.Error() != nil {
			return nil, starts.Error()
		}
		return figures{"starts": first, "ends": end}, ends.Error()
	})
}

// messages reads records from the start of the partitions, until `count` came.
func (r *replay) messages(page, topic string, count int) {
	r.call(page, "Fetch", keys(kmsg.Fetch, kmsg.ListOffsets), func(ctx context.Context) (figures, error) {
		reader, err := kgo.NewClient(append(r.connect, kgo.ConsumeTopics(topic),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))...)
		if err != nil {
			return nil, err
		}
		defer reader.Close()
		records := 0
		for records < count {
			found := reader.PollFetches(ctx)
			if err := found.Err0(); err != nil {
				return figures{"records": records}, err
			}
			for _, each := range found.Errors() {
				return figures{"records": records}, each.Err
			}
			records += found.NumRecords()
		}
		return figures{"records": records}, nil
	})
}

func (r *replay) groups(page string, names []string) {
	r.call(page, "ListGroups", keys(kmsg.ListGroups), func(ctx context.Context) (figures, error) {
		found, err := r.admin.ListGroups(ctx)
		if err != nil {
			return nil, err
		}
		states := figures{}
		for _, each := range found.Sorted() {
			states[each.Group] = each.State
		}
		return states, nil
	})
	r.call(page, "DescribeGroups", keys(kmsg.DescribeGroups), func(ctx context.Context) (figures, error) {
		found, err := r.admin.DescribeGroups(ctx, names...)
		if err != nil {
			return nil, err
		}
		described := figures{}
		for _, each := range found.Sorted() {
			if each.Err != nil {
				return described, each.Err
			}
			described[each.Group] = figures{"state": each.State, "members": len(each.Members), "assigned": assigned(each)}
		}
		return described, nil
	})
	r.call(page, "OffsetFetch, ListOffsets", keys(kmsg.OffsetFetch, kmsg.ListOffsets), r.lags(names))
}

func assigned(group kadm.DescribedGroup) []string {
	found := []string{}
	for _, topic := range group.AssignedPartitions().Sorted() {
		for _, partition := range topic.Partitions {
			found = append(found, place(topic.Topic, partition))
		}
	}
	sort.Strings(found)
	return found
}

// lags reads the offsets of all groups in one request for each coordinator, then the ends of their partitions.
func (r *replay) lags(names []string) func(context.Context) (figures, error) {
	return func(ctx context.Context) (figures, error) {
		committed := r.admin.FetchManyOffsets(ctx, names...)
		if err := committed.Error(); err != nil {
			return nil, err
		}
		ends, err := r.admin.ListEndOffsets(ctx, committed.CommittedPartitions().Topics()...)
		if err != nil {
			return nil, err
		}
		lags := figures{}
		for name, group := range committed {
			behind := map[string]int64{}
			group.Fetched.Each(func(each kadm.OffsetResponse) {
				if end, exists := ends.Lookup(each.Topic, each.Partition); exists && each.At >= 0 {
					behind[place(each.Topic, each.Partition)] = end.Offset - each.At
				}
			})
			lags[name] = behind
		}
		return lags, ends.Error()
	}
}
