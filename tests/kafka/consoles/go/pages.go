package main

// Pages of Redpanda Console, and the rounds of kminion.

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	recordCount  = 50
	producerRate = 1048576
)

func consolePages(r *replay, names world) {
	r.overview("overview")
	r.accessRules("overview")
	r.logDirs("brokers", names.Topic)
	r.brokerConfigs("brokers")
	r.topicConfigs("topics", names.Topic)
	r.logDirs("topics", names.Topic)
	r.offsets("topic", names.Topic)
	r.messages("topic", names.Topic, recordCount)
	r.groups("consumer groups", names.Groups)
	r.changeTopic(names.NewTopic)
	r.reassign(names.NewTopic)
	r.changeGroup(names.Idle, names.Topic)
	r.quotas(names.User)
	r.users(names)
	r.changeAccessRules(names.User, names.Topic)
	r.deleteTopic("topic", names.NewTopic)
}

func exporterPages(r *replay, names world) {
	r.overview("metrics")
	r.topicConfigs("metrics", names.Topic)
	r.logDirs("metrics", names.Topic)
	r.groups("metrics", names.Groups)
	r.offsets("metrics", names.Topic)
	r.changeTopic(names.NewTopic)
	r.reassign(names.NewTopic)
	r.messages("end to end", names.NewTopic, 1)
	r.deleteTopic("end to end", names.NewTopic)
}

func (r *replay) accessRules(page string) {
	r.call(page, "DescribeAcls", keys(kmsg.DescribeACLs), func(ctx context.Context) (figures, error) {
		request := kmsg.NewPtrDescribeACLsRequest()
		request.ResourceType = kmsg.ACLResourceTypeAny
		request.ResourcePatternType = kmsg.ACLResourcePatternTypeAny
		request.Operation = kmsg.ACLOperationAny
		request.PermissionType = kmsg.ACLPermissionTypeAny
		answer, err := request.RequestWith(ctx, r.client)
		if err != nil {
			return nil, err
		}
		refusal := kerr.ErrorForCode(answer.ErrorCode)
		if refusal == kerr.SecurityDisabled {
			return figures{"authorizer": false}, nil // the console shows that there is none
		}
		return figures{"authorizer": true, "resources": len(answer.Resources)}, refusal
	})
}

func (r *replay) changeTopic(name string) {
	const page = "topic"
	r.call(page, "CreateTopics", keys(kmsg.CreateTopics), func(ctx context.Context) (figures, error) {
		made, err := r.admin.CreateTopic(ctx, 2, 3, map[string]*string{"retention.ms": kadm.StringPtr("3600000")}, name)
		return figures{"partitions": made.NumPartitions, "replicas": made.ReplicationFactor}, err
	})
	r.call(page, "IncrementalAlterConfigs", keys(kmsg.IncrementalAlterConfigs), func(ctx context.Context) (figures, error) {
		change := kadm.AlterConfig{Op: kadm.SetConfig, Name: "retention.ms", Value: kadm.StringPtr("7200000")}
		answers, err := r.admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{change}, name)
		return nil, firstOf(err, refusal(answers))
	})
	r.topicConfigs(page, name)
	r.call(page, "CreatePartitions", keys(kmsg.CreatePartitions), func(ctx context.Context) (figures, error) {
		answers, err := r.admin.UpdatePartitions(ctx, 3, name)
		return nil, firstOf(err, answers.Error())
	})
	r.call(page, "Produce", keys(kmsg.Produce, kmsg.InitProducerID), func(ctx context.Context) (figures, error) {
		records := []*kgo.Record{}
		for range recordCount {
			records = append(records, &kgo.Record{Topic: name, Value: []byte("value")})
		}
		return figures{"records": len(records)}, r.client.ProduceSync(ctx, records...).FirstErr()
	})
	r.call(page, "DeleteRecords", keys(kmsg.DeleteRecords), func(ctx context.Context) (figures, error) {
		ends, err := r.admin.ListEndOffsets(ctx, name)
		if err != nil {
			return nil, err
		}
		before := kadm.Offsets{}
		ends.Each(func(each kadm.ListedOffset) { before.AddOffset(name, each.Partition, each.Offset/2, -1) })
		answers, err := r.admin.DeleteRecords(ctx, before)
		return nil, firstOf(err, answers.Error())
	})
	r.offsets(page, name)
}

func refusal(answers kadm.AlterConfigsResponses) error {
	for _, each := range answers {
		if each.Err != nil {
			return fmt.Errorf("%w %s", each.Err, each.ErrMessage)
		}
	}
	return nil
}

func firstOf(errors ...error) error {
	for _, each := range errors {
		if each != nil {
			return each
		}
	}
	return nil
}

// reassign makes another broker the first replica of a partition, first with the throttle that the console can set.
func (r *replay) reassign(topic string) {
	const page = "reassign partitions"
	r.call(page, "ListPartitionReassignments", keys(kmsg.ListPartitionReassignments), func(ctx context.Context) (figures, error) {
		found, err := r.admin.ListPartitionReassignments(ctx, nil)
		return figures{"topics": len(found)}, err
	})
	r.call(page, "IncrementalAlterConfigs of brokers", keys(kmsg.IncrementalAlterConfigs), func(ctx context.Context) (figures, error) {
		rate := kadm.AlterConfig{Name: "leader.replication.throttled.rate", Value: kadm.StringPtr("1000000")}
		brokers, err := r.admin.ListBrokers(ctx)
		if err != nil {
			return nil, err
		}
		answers, err := r.admin.AlterBrokerConfigs(ctx, []kadm.AlterConfig{rate}, brokers.NodeIDs()...)
		return nil, firstOf(err, refusal(answers))
	})
	r.call(page, "AlterPartitionReassignments", keys(kmsg.AlterPartitionAssignments), func(ctx context.Context) (figures, error) {
		found, err := r.admin.Metadata(ctx, topic)
		if err != nil {
			return nil, err
		}
		chosen := found.Brokers.NodeIDs()[0]
		request := kadm.AlterPartitionAssignmentsReq{}
		request.Assign(topic, 0, []int32{chosen})
		answers, err := r.admin.AlterPartitionAssignments(ctx, request)
		return figures{"broker": chosen}, firstOf(err, answers.Error())
	})
}

func (r *replay) changeGroup(group, topic string) {
	const page = "consumer groups"
	commit := func(ctx context.Context) (figures, error) {
		offsets := kadm.Offsets{}
		offsets.AddOffset(topic, 0, 7, -1)
		return nil, r.admin.CommitAllOffsets(ctx, group, offsets)
	}
	r.call(page, "OffsetCommit", keys(kmsg.OffsetCommit), commit)
	r.call(page, "OffsetFetch, ListOffsets", keys(kmsg.OffsetFetch), r.lags([]string{group}))
	r.call(page, "OffsetDelete", keys(kmsg.OffsetDelete), func(ctx context.Context) (figures, error) {
		partitions := kadm.TopicsSet{}
		partitions.Add(topic, 0)
		answers, err := r.admin.DeleteOffsets(ctx, group, partitions)
		return nil, firstOf(err, answers.Error())
	})
	r.call(page, "OffsetCommit, again", keys(kmsg.OffsetCommit), commit) // without offsets there is no group
	r.call(page, "DeleteGroups", keys(kmsg.DeleteGroups), func(ctx context.Context) (figures, error) {
		answer, err := r.admin.DeleteGroup(ctx, group)
		return nil, firstOf(err, answer.Err)
	})
}

func (r *replay) quotas(user string) {
	const page = "quotas"
	entity := kadm.ClientQuotaEntity{{Type: "user", Name: &user}}
	change := func(name string, op kadm.AlterClientQuotaOp) {
		r.call(page, name, keys(kmsg.AlterClientQuotas), func(ctx context.Context) (figures, error) {
			entry := kadm.AlterClientQuotaEntry{Entity: entity, Ops: []kadm.AlterClientQuotaOp{op}}
			answers, err := r.admin.AlterClientQuotas(ctx, []kadm.AlterClientQuotaEntry{entry})
			for _, each := range answers {
				err = firstOf(err, each.Err)
			}
			return nil, err
		})
	}
	change("AlterClientQuotas", kadm.AlterClientQuotaOp{Key: "producer_byte_rate", Value: producerRate})
	r.call(page, "DescribeClientQuotas", keys(kmsg.DescribeClientQuotas), func(ctx context.Context) (figures, error) {
		found, err := r.admin.DescribeClientQuotas(ctx, false, nil)
		rates := figures{}
		for _, each := range found {
			values := map[string]float64{}
			for _, value := range each.Values {
				values[value.Key] = value.Value
			}
			rates[each.Entity.String()] = values
		}
		return rates, err
	})
	change("AlterClientQuotas, removal", kadm.AlterClientQuotaOp{Key: "producer_byte_rate", Remove: true})
}

func (r *replay) users(names world) {
	const page = "users"
	fresh := names.User + "-of-the-console"
	r.call(page, "AlterUserScramCredentials", keys(kmsg.AlterUserSCRAMCredentials), func(ctx context.Context) (figures, error) {
		user := kadm.UpsertSCRAM{User: fresh, Mechanism: kadm.ScramSha512, Iterations: 4096, Password: names.Password}
		answers, err := r.admin.AlterUserSCRAMs(ctx, nil, []kadm.UpsertSCRAM{user})
		return nil, firstOf(err, answers.Error())
	})
	r.call(page, "DescribeUserScramCredentials", keys(kmsg.DescribeUserSCRAMCredentials), func(ctx context.Context) (figures, error) {
		found, err := r.admin.DescribeUserSCRAMs(ctx)
		mechanisms := figures{}
		for name, each := range found {
			mechanisms[name] = len(each.CredInfos)
		}
		return mechanisms, err
	})
	r.call(page, "AlterUserScramCredentials, removal", keys(kmsg.AlterUserSCRAMCredentials), func(ctx context.Context) (figures, error) {
		gone := kadm.DeleteSCRAM{User: fresh, Mechanism: kadm.ScramSha512}
		answers, err := r.admin.AlterUserSCRAMs(ctx, []kadm.DeleteSCRAM{gone}, nil)
		return nil, firstOf(err, answers.Error())
	})
}

func (r *replay) changeAccessRules(user, topic string) {
	const page = "access rules"
	rules := kadm.NewACLs().Topics(topic).ResourcePatternType(kadm.ACLPatternLiteral).
		Operations(kadm.OpRead).Allow("User:" + user).AllowHosts("*")
	r.call(page, "CreateAcls", keys(kmsg.CreateACLs), func(ctx context.Context) (figures, error) {
		answers, err := r.admin.CreateACLs(ctx, rules)
		for _, each := range answers {
			err = firstOf(err, each.Err)
		}
		return figures{"rules": len(answers)}, err
	})
	r.accessRules(page)
	r.call(page, "DeleteAcls", keys(kmsg.DeleteACLs), func(ctx context.Context) (figures, error) {
		answers, err := r.admin.DeleteACLs(ctx, rules)
		deleted := 0
		for _, each := range answers {
			err = firstOf(err, each.Err)
			deleted += len(each.Deleted)
		}
		return figures{"rules": deleted}, err
	})
}

func (r *replay) deleteTopic(page, name string) {
	r.call(page, "DeleteTopics", keys(kmsg.DeleteTopics), func(ctx context.Context) (figures, error) {
		answer, err := r.admin.DeleteTopic(ctx, name)
		return nil, firstOf(err, answer.Err)
	})
}
