// sarama, as the programs that tests/support/programs.py describes.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/IBM/sarama"

	"millstream.tests/clients/command"
)

type client struct{ address string }

func config() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.Producer.Return.Successes = true
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	// By hand it takes a fifth of a second for each: a commit waits for the fetches before it.
	config.Consumer.Offsets.AutoCommit.Interval = 100 * time.Millisecond
	config.Consumer.IsolationLevel = sarama.ReadCommitted
	config.Consumer.Return.Errors = true
	config.Consumer.Group.Heartbeat.Interval = 300 * time.Millisecond
	return config
}

func (c client) admin() sarama.ClusterAdmin {
	admin, err := sarama.NewClusterAdmin([]string{c.address}, config())
	command.Must(err)
	return admin
}

func code(err error) int16 {
	var of *sarama.TopicError
	if errors.As(err, &of) {
		return int16(of.Err)
	}
	var told sarama.KError
	if errors.As(err, &told) {
		return int16(told)
	}
	command.Must(err)
	return 0
}

func (c client) Administer(topic string) map[string]any {
	admin := c.admin()
	defer admin.Close()
	retention := "60000"
	detail := &sarama.TopicDetail{
		NumPartitions: 2, ReplicationFactor: 1, ConfigEntries: map[string]*string{"retention.ms": &retention},
	}
	command.Must(admin.CreateTopic(topic, detail, false))
	again := code(admin.CreateTopic(topic, detail, false))
	setting := func() string {
		entries, err := admin.DescribeConfig(sarama.ConfigResource{
			Type: sarama.TopicResource, Name: topic, ConfigNames: []string{"retention.ms"},
		})
		command.Must(err)
		return entries[0].Value
	}
	partitions := func() int {
		described, err := admin.DescribeTopics([]string{topic})
		command.Must(err)
		return len(described[0].Partitions)
	}
	said := map[string]any{"again": again, "partitions": partitions(), "retention": setting()}
	changed := "70000"
	command.Must(admin.IncrementalAlterConfig(sarama.TopicResource, topic, map[string]sarama.IncrementalAlterConfigsEntry{
		"retention.ms": {Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &changed},
	}, false))
	said["altered"] = setting()
	command.Must(admin.CreatePartitions(topic, 3, nil, false))
	said["grown"] = partitions()
	all, err := admin.ListTopics()
	command.Must(err)
	_, said["listed"] = all[topic]
	command.Must(admin.DeleteTopic(topic))
	said["missing"] = code(admin.DeleteTopic(topic))
	return said
}

func (c client) Produce(topic string, count int, codec string) {
	codecs := map[string]sarama.CompressionCodec{
		"none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP, "snappy": sarama.CompressionSnappy,
		"lz4": sarama.CompressionLZ4, "zstd": sarama.CompressionZSTD,
	}
	config := config()
	config.Producer.Compression = codecs[codec]
	config.Producer.Idempotent = true
	config.Net.MaxOpenRequests = 1
	producer, err := sarama.NewSyncProducer([]string{c.address}, config)
	command.Must(err)
	defer producer.Close()
	var messages []*sarama.ProducerMessage
	for n := range count {
		messages = append(messages, &sarama.ProducerMessage{
			Topic: topic, Partition: int32(n % 2), Key: sarama.StringEncoder(command.Key(n)),
			Value:   sarama.StringEncoder(command.Value(n)),
			Headers: []sarama.RecordHeader{{Key: []byte("n"), Value: []byte(command.Header(n))}},
		})
	}
	command.Must(producer.SendMessages(messages))
	for _, message := range messages {
		command.Say(map[string]any{"partition": message.Partition, "offset": message.Offset})
	}
}

func say(message *sarama.ConsumerMessage) {
	header := ""
	for _, each := range message.Headers {
		header = string(each.Value)
	}
	command.Say(command.Record{
		Partition: message.Partition, Offset: message.Offset, Key: string(message.Key),
		Value: string(message.Value), Header: header,
	})
}

type handler struct{}

func (handler) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (handler) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (handler) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message := <-claim.Messages():
			if message == nil {
				return nil
			}
			say(message)
			session.MarkMessage(message, "")
		case <-session.Context().Done():
			return nil
		}
	}
}

func (c client) Consume(stopped context.Context, group, topic, _ string) {
	config := config()
	config.Consumer.Return.Errors = false
	members, err := sarama.NewConsumerGroup([]string{c.address}, group, config)
	command.Must(err)
	defer members.Close()
	for stopped.Err() == nil {
		if err := members.Consume(stopped, []string{topic}, handler{}); err != nil && stopped.Err() == nil {
			fmt.Fprintln(os.Stderr, "consume:", err)
		}
	}
}

func (c client) Read(topic string, partition, offset, millis int64, count int) {
	connected, err := sarama.NewClient([]string{c.address}, config())
	command.Must(err)
	defer connected.Close()
	if millis >= 0 {
		offset, err = connected.GetOffset(topic, int32(partition), millis)
		command.Must(err)
	}
	consumer, err := sarama.NewConsumerFromClient(connected)
	command.Must(err)
	reading, err := consumer.ConsumePartition(topic, int32(partition), offset)
	command.Must(err)
	for range count {
		select {
		case message := <-reading.Messages():
			say(message)
		case failed := <-reading.Errors():
			command.Must(failed)
		}
	}
}

func (c client) Transact(topic, id string) {
	config := config()
	config.Producer.Idempotent = true
	config.Producer.Transaction.ID = id
	config.Net.MaxOpenRequests = 1
	producer, err := sarama.NewSyncProducer([]string{c.address}, config)
	command.Must(err)
	defer producer.Close()
	for _, word := range []string{"yes", "no", "also"} {
		command.Must(producer.BeginTxn())
		for n := range 2 {
			value := sarama.StringEncoder(word + "-" + strconv.Itoa(n))
			_, _, err := producer.SendMessage(&sarama.ProducerMessage{Topic: topic, Value: value})
			command.Must(err)
		}
		if word == "no" {
			command.Must(producer.AbortTxn())
		} else {
			command.Must(producer.CommitTxn())
		}
	}
}

func (c client) DescribeGroup(group, topic string) map[string]any {
	admin := c.admin()
	defer admin.Close()
	described, err := admin.DescribeConsumerGroups([]string{group})
	command.Must(err)
	fetched, err := admin.ListConsumerGroupOffsets(group, map[string][]int32{topic: {0, 1}})
	command.Must(err)
	offsets := map[string]int64{}
	for partition, block := range fetched.Blocks[topic] {
		offsets[strconv.Itoa(int(partition))] = block.Offset
	}
	return map[string]any{"state": described[0].State, "members": len(described[0].Members), "offsets": offsets}
}

func (c client) DeleteGroup(group string) {
	admin := c.admin()
	defer admin.Close()
	command.Must(admin.DeleteConsumerGroup(group))
}

func main() { command.Run(client{os.Args[1]}, os.Args[2:]) }
