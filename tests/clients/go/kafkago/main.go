// segmentio/kafka-go, as the programs that tests/support/programs.py describes. It has no transactions.
package main

import (
	"context"
	"errors"
	"os"
	"strconv"
	"time"

	"github.com/segmentio/kafka-go"

	"millstream.tests/clients/command"
)

var ctx = context.Background()

type client struct{ address string }

func (c client) ask() *kafka.Client {
	return &kafka.Client{Addr: kafka.TCP(c.address), Timeout: 10 * time.Second}
}

func code(err error) int {
	var told kafka.Error
	if errors.As(err, &told) {
		return int(told)
	}
	command.Must(err)
	return 0
}

func (c client) Administer(topic string) map[string]any {
	ask := c.ask()
	create := func() error {
		made, err := ask.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{{
			Topic: topic, NumPartitions: 2, ReplicationFactor: 1,
			ConfigEntries: []kafka.ConfigEntry{{ConfigName: "retention.ms", ConfigValue: "60000"}},
		}}})
		command.Must(err)
		return made.Errors[topic]
	}
	command.Must(create())
	resource := kafka.DescribeConfigRequestResource{
		ResourceType: kafka.ResourceTypeTopic, ResourceName: topic, ConfigNames: []string{"retention.ms"},
	}
	setting := func() string {
		described, err := ask.DescribeConfigs(ctx, &kafka.DescribeConfigsRequest{
			Resources: []kafka.DescribeConfigRequestResource{resource},
		})
		command.Must(err)
		return described.Resources[0].ConfigEntries[0].ConfigValue
	}
	connection, err := kafka.Dial("tcp", c.address)
	command.Must(err)
	defer connection.Close()
	partitions := func() int {
		found, err := connection.ReadPartitions(topic)
		command.Must(err)
		return len(found)
	}
	said := map[string]any{"again": code(create()), "partitions": partitions(), "retention": setting()}
	altered, err := ask.IncrementalAlterConfigs(ctx, &kafka.IncrementalAlterConfigsRequest{
		Resources: []kafka.IncrementalAlterConfigsRequestResource{{
			ResourceType: kafka.ResourceTypeTopic, ResourceName: topic,
			Configs: []kafka.IncrementalAlterConfigsRequestConfig{{
				Name: "retention.ms", Value: "70000", ConfigOperation: kafka.ConfigOperationSet,
			}},
		}},
	})
	command.Must(err)
	command.Must(altered.Resources[0].Error)
	said["altered"] = setting()
	grown, err := ask.CreatePartitions(ctx, &kafka.CreatePartitionsRequest{
		Topics: []kafka.TopicPartitionsConfig{{Name: topic, Count: 3}},
	})
	command.Must(err)
	command.Must(grown.Errors[topic])
	said["grown"] = partitions()
	all, err := connection.ReadPartitions()
	command.Must(err)
	said["listed"] = false
	for _, partition := range all {
		said["listed"] = said["listed"] == true || partition.Topic == topic
	}
	remove := func() error {
		removed, err := ask.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: []string{topic}})
		command.Must(err)
		return removed.Errors[topic]
	}
	command.Must(remove())
	said["missing"] = code(remove())
	return said
}

func (c client) Produce(topic string, count int, codec string) {
	codecs := map[string]kafka.Compression{
		"gzip": kafka.Gzip, "snappy": kafka.Snappy, "lz4": kafka.Lz4, "zstd": kafka.Zstd,
	}
	offsets := make([]kafka.Message, 0, count)
	writer := &kafka.Writer{
		Addr: kafka.TCP(c.address), Topic: topic, RequiredAcks: kafka.RequireAll, Compression: codecs[codec],
		BatchTimeout: 10 * time.Millisecond,
		Balancer: kafka.BalancerFunc(func(message kafka.Message, partitions ...int) int {
			n, err := strconv.Atoi(string(message.Headers[0].Value))
			command.Must(err)
			return n % 2
		}),
		Completion: func(messages []kafka.Message, err error) { offsets = append(offsets, messages...) },
	}
	var messages []kafka.Message
	for n := range count {
		messages = append(messages, kafka.Message{
			Key: []byte(command.Key(n)), Value: []byte(command.Value(n)),
			Headers: []kafka.Header{{Key: "n", Value: []byte(command.Header(n))}},
		})
	}
	command.Must(writer.WriteMessages(ctx, messages...))
	command.Must(writer.Close())
	for _, message := range offsets {
		command.Say(map[string]any{"partition": message.Partition, "offset": message.Offset})
	}
}

func say(message kafka.Message) {
	header := ""
	for _, each := range message.Headers {
		header = string(each.Value)
	}
	command.Say(command.Record{
		Partition: int32(message.Partition), Offset: message.Offset, Key: string(message.Key),
		Value: string(message.Value), Header: header,
	})
}

func (c client) Consume(stopped context.Context, group, topic, _ string) {
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{c.address}, GroupID: group, Topic: topic, StartOffset: kafka.FirstOffset,
		HeartbeatInterval: 500 * time.Millisecond, MaxWait: 200 * time.Millisecond,
	})
	defer reader.Close()
	for {
		message, err := reader.FetchMessage(stopped)
		if stopped.Err() != nil {
			return
		}
		command.Must(err)
		say(message)
		command.Must(reader.CommitMessages(ctx, message))
	}
}

func (c client) Read(topic string, partition, offset, millis int64, count int) {
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{c.address}, Topic: topic, Partition: int(partition), MaxWait: 200 * time.Millisecond,
		IsolationLevel: kafka.ReadCommitted,
	})
	defer reader.Close()
	if millis >= 0 {
		command.Must(reader.SetOffsetAt(ctx, time.UnixMilli(millis)))
	} else {
		command.Must(reader.SetOffset(offset))
	}
	for range count {
		message, err := reader.ReadMessage(ctx)
		command.Must(err)
		say(message)
	}
}

func (c client) Transact(string, string) { command.Must(errors.New("kafka-go has no transactions")) }

func (c client) DescribeGroup(group, topic string) map[string]any {
	ask := c.ask()
	described, err := ask.DescribeGroups(ctx, &kafka.DescribeGroupsRequest{GroupIDs: []string{group}})
	command.Must(err)
	fetched, err := ask.OffsetFetch(ctx, &kafka.OffsetFetchRequest{
		GroupID: group, Topics: map[string][]int{topic: {0, 1}},
	})
	command.Must(err)
	offsets := map[string]int64{}
	for _, partition := range fetched.Topics[topic] {
		offsets[strconv.Itoa(partition.Partition)] = partition.CommittedOffset
	}
	found := described.Groups[0]
	return map[string]any{"state": found.GroupState, "members": len(found.Members), "offsets": offsets}
}

func (c client) DeleteGroup(group string) {
	deleted, err := c.ask().DeleteGroups(ctx, &kafka.DeleteGroupsRequest{GroupIDs: []string{group}})
	command.Must(err)
	command.Must(deleted.Errors[group])
}

func main() { command.Run(client{os.Args[1]}, os.Args[2:]) }
