// franz-go, as the programs that tests/support/programs.py describes.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"millstream.tests/clients/command"
)

var ctx = context.Background()

type franz struct{ address string }

func (f franz) open(options ...kgo.Opt) *kgo.Client {
	client, err := kgo.NewClient(append(options, kgo.SeedBrokers(f.address))...)
	command.Must(err)
	return client
}

func (f franz) admin() *kadm.Client { return kadm.NewClient(f.open()) }

func code(err error) int16 {
	var told *kerr.Error
	if errors.As(err, &told) {
		return told.Code
	}
	command.Must(err)
	return 0
}

func (f franz) Administer(topic string) map[string]any {
	admin := f.admin()
	defer admin.Close()
	retention := "60000"
	_, err := admin.CreateTopic(ctx, 2, 1, map[string]*string{"retention.ms": &retention}, topic)
	command.Must(err)
	_, again := admin.CreateTopic(ctx, 2, 1, nil, topic)
	setting := func() string {
		described, err := admin.DescribeTopicConfigs(ctx, topic)
		command.Must(err)
		found, err := described.On(topic, nil)
		command.Must(err)
		for _, config := range found.Configs {
			if config.Key == "retention.ms" {
				return config.MaybeValue()
			}
		}
		return ""
	}
	partitions := func() int {
		listed, err := admin.ListTopics(ctx, topic)
		command.Must(err)
		return len(listed[topic].Partitions)
	}
	said := map[string]any{"again": code(again), "partitions": partitions(), "retention": setting()}
	changed := "70000"
	altered, err := admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Name: "retention.ms", Value: &changed}}, topic)
	command.Must(err)
	command.Must(altered[0].Err)
	said["altered"] = setting()
	grown, err := admin.CreatePartitions(ctx, 1, topic)
	command.Must(err)
	command.Must(grown[topic].Err)
	said["grown"] = partitions()
	all, err := admin.ListTopics(ctx)
	command.Must(err)
	said["listed"] = all.Has(topic)
	_, err = admin.DeleteTopic(ctx, topic)
	command.Must(err)
	_, missing := admin.DeleteTopic(ctx, topic)
	said["missing"] = code(missing)
	return said
}

func (f franz) Produce(topic string, count int, codec string) {
	codecs := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	client := f.open(kgo.ProducerBatchCompression(codecs[codec]), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	defer client.Close()
	var records []*kgo.Record
	for n := range count {
		records = append(records, &kgo.Record{
			Topic: topic, Partition: int32(n % 2), Key: []byte(command.Key(n)), Value: []byte(command.Value(n)),
			Headers: []kgo.RecordHeader{{Key: "n", Value: []byte(command.Header(n))}},
		})
	}
	for _, result := range client.ProduceSync(ctx, records...) {
		command.Must(result.Err)
		command.Say(map[string]any{"partition": result.Record.Partition, "offset": result.Record.Offset})
	}
}

func say(record *kgo.Record) {
	header := ""
	for _, each := range record.Headers {
		header = string(each.Value)
	}
	command.Say(command.Record{
		Partition: record.Partition, Offset: record.Offset, Key: string(record.Key), Value: string(record.Value),
		Header: header,
	})
}

func (f franz) Consume(stopped context.Context, group, topic, protocol string) {
	options := []kgo.Opt{
		kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.BlockRebalanceOnPoll(),
	}
	if protocol == "consumer" {
		options = append(options, kgo.ServerSideBalancer())
	}
	client := f.open(options...)
	defer client.CloseAllowingRebalance()
	for {
		fetches := client.PollFetches(stopped)
		if stopped.Err() != nil {
			return
		}
		for _, failed := range fetches.Errors() {
			command.Must(failed.Err)
		}
		fetches.EachRecord(say)
		if err := client.CommitUncommittedOffsets(ctx); err != nil {
			fmt.Fprintln(os.Stderr, "commit:", err) // a rebalance came between: it is read again
		}
		client.AllowRebalance()
	}
}

func (f franz) Read(topic string, partition, offset, millis int64, count int) {
	start := kgo.NewOffset().At(offset)
	if millis >= 0 {
		start = kgo.NewOffset().AfterMilli(millis)
	}
	client := f.open(
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {int32(partition): start}}),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
	)
	defer client.Close()
	for count > 0 {
		fetches := client.PollFetches(ctx)
		for _, failed := range fetches.Errors() {
			command.Must(failed.Err)
		}
		fetches.EachRecord(func(record *kgo.Record) {
			if count > 0 {
				say(record)
			}
			count--
		})
	}
}

func (f franz) Transact(topic, id string) {
	client := f.open(
		kgo.TransactionalID(id), kgo.DefaultProduceTopic(topic), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	defer client.Close()
	for _, word := range []string{"yes", "no", "also"} {
		command.Must(client.BeginTransaction())
		for n := range 2 {
			record := &kgo.Record{Value: []byte(word + "-" + strconv.Itoa(n))}
			command.Must(client.ProduceSync(ctx, record).FirstErr())
		}
		command.Must(client.EndTransaction(ctx, kgo.TransactionEndTry(word != "no")))
	}
}

func (f franz) DescribeGroup(group, topic string) map[string]any {
	admin := f.admin()
	defer admin.Close()
	described, err := admin.DescribeGroups(ctx, group)
	command.Must(err)
	offsets := map[string]int64{}
	fetched, err := admin.FetchOffsets(ctx, group)
	command.Must(err)
	fetched.Each(func(offset kadm.OffsetResponse) {
		offsets[strconv.Itoa(int(offset.Partition))] = offset.At
	})
	return map[string]any{"state": described[group].State, "members": len(described[group].Members), "offsets": offsets}
}

func (f franz) DeleteGroup(group string) {
	admin := f.admin()
	defer admin.Close()
	_, err := admin.DeleteGroup(ctx, group)
	command.Must(err)
}

// Share reads in a share group until each of so many records is accepted. Each tenth is released first, and each
// eleventh renewed.
func (f franz) Share(group, topic string, count int) {
	client := f.open(kgo.ShareGroup(group), kgo.ConsumeTopics(topic))
	defer client.Close()
	for count > 0 {
		client.PollFetches(ctx).EachRecord(func(record *kgo.Record) {
			command.Say(map[string]any{"value": string(record.Value), "delivery": record.DeliveryCount()})
			number, err := strconv.Atoi(string(record.Value))
			command.Must(err)
			if number%11 == 0 {
				record.Ack(kgo.AckRenew)
				command.Must(client.FlushAcks(ctx))
			}
			if number%10 == 0 && record.DeliveryCount() == 1 {
				record.Ack(kgo.AckRelease)
				return
			}
			record.Ack(kgo.AckAccept)
			count--
		})
		command.Must(client.FlushAcks(ctx))
	}
}

func main() { command.Run(franz{os.Args[1]}, os.Args[2:]) }
