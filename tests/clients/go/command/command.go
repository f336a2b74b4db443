// Package command is what the three programs share: their command line and what they print.
// tests/support/programs.py says what each command does.
package command

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
)

// Client is a library put to use.
type Client interface {
	Administer(topic string) map[string]any
	Produce(topic string, count int, codec string)
	Consume(stopped context.Context, group, topic, protocol string)
	Read(topic string, partition, offset, millis int64, count int)
	Transact(topic, id string)
	DescribeGroup(group, topic string) map[string]any
	DeleteGroup(group string)
}

// Sharer is a library that has share groups.
type Sharer interface {
	Share(group, topic string, count int)
}

// Record is what is told of a record that was read.
type Record struct {
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
	Key       string `json:"key"`
	Value     string `json:"value"`
	Header    string `json:"header"`
}

// Say prints a line of JSON.
func Say(what any) {
	line, err := json.Marshal(what)
	Must(err)
	fmt.Println(string(line))
}

// Must ends the program with an error.
func Must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// Key, Value and Header are those of the record with this number; its partition is the rest by two.
func Key(n int) string    { return fmt.Sprintf("k%d", n) }
func Value(n int) string  { return fmt.Sprintf("v%d", n) }
func Header(n int) string { return strconv.Itoa(n) }

// Run does what the command line asks for. A consumer goes on until standard input ends.
func Run(client Client, arguments []string) {
	command, rest := arguments[0], arguments[1:]
	number := func(text string) int64 {
		n, err := strconv.ParseInt(text, 10, 64)
		Must(err)
		return n
	}
	switch command {
	case "administer":
		Say(client.Administer(rest[0]))
	case "produce":
		client.Produce(rest[0], int(number(rest[1])), rest[2])
	case "consume":
		stopped, stop := context.WithCancel(context.Background())
		go func() {
			_, _ = io.ReadAll(os.Stdin)
			stop()
		}()
		client.Consume(stopped, rest[0], rest[1], rest[2])
	case "read":
		offset, millis := int64(-1), int64(-1)
		if text, timed := strings.CutPrefix(rest[2], "@"); timed {
			millis = number(text)
		} else {
			offset = number(text)
		}
		client.Read(rest[0], number(rest[1]), offset, millis, int(number(rest[3])))
	case "transact":
		client.Transact(rest[0], rest[1])
	case "describe-group":
		Say(client.DescribeGroup(rest[0], rest[1]))
	case "delete-group":
		client.DeleteGroup(rest[0])
	case "share":
		client.(Sharer).Share(rest[0], rest[1], int(number(rest[2])))
	default:
		Must(fmt.Errorf("unknown command %q", command))
	}
}
