import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Kafka's own client, as the programs that tests/support/programs.py describes. */
public class PlainClient {
    private static String address;

    private static Properties properties(String... pairs) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", address);
        for (int i = 0; i < pairs.length; i += 2) {
            properties.put(pairs[i], pairs[i + 1]);
        }
        return properties;
    }

    private static KafkaConsumer<String, String> consumer(String... pairs) {
        Properties properties = properties(pairs);
        properties.putIfAbsent("auto.offset.reset", "earliest");
        properties.put("enable.auto.commit", "false");
        properties.put("isolation.level", "read_committed");
        return new KafkaConsumer<>(properties, new StringDeserializer(), new StringDeserializer());
    }

    private static KafkaProducer<String, String> producer(String... pairs) {
        return new KafkaProducer<>(properties(pairs), new StringSerializer(), new StringSerializer());
    }

    private static int code(KafkaFuture<?> future) throws Exception {
        try {
            future.get();
            return 0;
        } catch (ExecutionException error) {
            return Errors.forException((ApiException) error.getCause()).code();
        }
    }

    private static void tell(ConsumerRecord<String, String> record) {
        String header = "";
        for (Header each : record.headers()) {
            header = new String(each.value());
        }
        String key = record.key() == null ? "" : record.key();
        System.out.printf("{\"partition\": %d, \"offset\": %d, \"key\": \"%s\", \"value\": \"%s\", \"header\": \"%s\"}%n",
            record.partition(), record.offset(), key, record.value(), header);
    }

    private static void administer(String topic) throws Exception {
        try (Admin admin = Admin.create(properties())) {
            NewTopic made = new NewTopic(topic, Optional.of(2), Optional.of((short) 1)).configs(Map.of("retention.ms", "60000"));
            admin.createTopics(List.of(made)).all().get();
            int again = code(admin.createTopics(List.of(made)).all());
            int partitions = described(admin, topic);
            String retention = setting(admin, topic);
            Collection<AlterConfigOp> change =
                List.of(new AlterConfigOp(new ConfigEntry("retention.ms", "70000"), AlterConfigOp.OpType.SET));
            admin.incrementalAlterConfigs(Map.of(new ConfigResource(ConfigResource.Type.TOPIC, topic), change)).all().get();
            String altered = setting(admin, topic);
            admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(3))).all().get();
            int grown = described(admin, topic);
            boolean listed = admin.listTopics().names().get().contains(topic);
            admin.deleteTopics(List.of(topic)).all().get();
            int missing = code(admin.deleteTopics(List.of(topic)).all());
            System.out.printf("{\"again\": %d, \"partitions\": %d, \"retention\": \"%s\", \"altered\": \"%s\", "
                + "\"grown\": %d, \"listed\": %b, \"missing\": %d}%n", again, partitions, retention, altered, grown, listed, missing);
        }
    }

    private static int described(Admin admin, String topic) throws Exception {
        return admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size();
    }

    private static String setting(Admin admin, String topic) throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        return admin.describeConfigs(List.of(resource)).all().get().get(resource).get("retention.ms").value();
    }

    private static void produce(String topic, int count, String codec) throws Exception {
        try (KafkaProducer<String, String> producer = producer("compression.type", codec, "linger.ms", "5")) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (int n = 0; n < count; n++) {
                ProducerRecord<String, String> record = new ProducerRecord<>(topic, n % 2, "k" + n, "v" + n);
                record.headers().add("n", Integer.toString(n).getBytes());
                sent.add(producer.send(record));
            }
            for (Future<RecordMetadata> each : sent) {
                System.out.printf("{\"partition\": %d, \"offset\": %d}%n", each.get().partition(), each.get().offset());
            }
        }
    }

    private static void consume(String group, String topic, String protocol) {
        AtomicBoolean stopped = new AtomicBoolean();
        Thread waiting = new Thread(() -> {
            try {
                System.in.readAllBytes();
            } catch (java.io.IOException error) {
                // as good as its end
            }
            stopped.set(true);
        });
        waiting.setDaemon(true);
        waiting.start();
        try (KafkaConsumer<String, String> consumer = consumer("group.id", group, "group.protocol", protocol)) {
            consumer.subscribe(List.of(topic));
            while (!stopped.get()) {
                consumer.poll(Duration.ofMillis(100)).forEach(PlainClient::tell);
                try {
                    consumer.commitSync();
                } catch (CommitFailedException error) {
                    System.err.println("commit: " + error); // a rebalance came between: it is read again
                }
            }
        }
    }

    /** Reads in a share group until all are accepted. Each tenth record is released first, each eleventh renewed. */
    private static void share(String group, String topic, int count) {
        Properties properties = properties("group.id", group, "share.acknowledgement.mode", "explicit");
        try (KafkaShareConsumer<String, String> consumer =
                new KafkaShareConsumer<>(properties, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(topic));
            Set<String> renewed = new HashSet<>();
            int left = count;
            while (left > 0) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) {
                    int delivery = record.deliveryCount().orElse((short) 0);
                    int number = Integer.parseInt(record.value());
                    if (number % 11 == 0 && renewed.add(record.value() + "-" + delivery)) {
                        consumer.acknowledge(record, AcknowledgeType.RENEW); // the next poll returns it again
                        continue;
                    }
                    System.out.printf("{\"value\": \"%s\", \"delivery\": %d}%n", record.value(), delivery);
                    if (number % 10 == 0 && delivery == 1) {
                        consumer.acknowledge(record, AcknowledgeType.RELEASE);
                    } else {
                        consumer.acknowledge(record, AcknowledgeType.ACCEPT);
                        left--;
                    }
                }
                consumer.commitSync().values().forEach(error -> error.ifPresent(told -> { throw told; }));
            }
        }
    }

    private static void read(String topic, int partition, String where, int count) {
        try (KafkaConsumer<String, String> consumer = consumer()) {
            TopicPartition wanted = new TopicPartition(topic, partition);
            consumer.assign(List.of(wanted));
            if (where.startsWith("@")) {
                long millis = Long.parseLong(where.substring(1));
                consumer.seek(wanted, consumer.offsetsForTimes(Map.of(wanted, millis)).get(wanted).offset());
            } else {
                consumer.seek(wanted, Long.parseLong(where));
            }
            int left = count;
            while (left > 0) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) {
                    if (left-- > 0) {
                        tell(record);
                    }
                }
            }
        }
    }

    private static void transact(String topic, String id) throws Exception {
        try (KafkaProducer<String, String> producer = producer("transactional.id", id)) {
            producer.initTransactions();
            for (String word : List.of("yes", "no", "also")) {
                producer.beginTransaction();
                for (int n = 0; n < 2; n++) {
                    producer.send(new ProducerRecord<>(topic, 0, null, word + "-" + n)).get();
                }
                if (word.equals("no")) {
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                }
            }
        }
    }

    private static void describeGroup(String group) throws Exception {
        try (Admin admin = Admin.create(properties())) {
            var described = admin.describeConsumerGroups(List.of(group)).all().get().get(group);
            Map<String, Long> offsets = new HashMap<>();
            for (Map.Entry<TopicPartition, OffsetAndMetadata> each :
                    admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().entrySet()) {
                offsets.put("\"" + each.getKey().partition() + "\"", each.getValue().offset());
            }
            System.out.printf("{\"state\": \"%s\", \"members\": %d, \"offsets\": %s}%n", described.groupState(),
                described.members().size(), offsets.toString().replace('=', ':'));
        }
    }

    private static void deleteGroup(String group) throws Exception {
        try (Admin admin = Admin.create(properties())) {
            admin.deleteConsumerGroups(List.of(group)).all().get();
        }
    }

    public static void main(String[] given) throws Exception {
        address = given[0];
        switch (given[1]) {
            case "administer" -> administer(given[2]);
            case "produce" -> produce(given[2], Integer.parseInt(given[3]), given[4]);
            case "consume" -> consume(given[2], given[3], given[4]);
            case "read" -> read(given[2], Integer.parseInt(given[3]), given[4], Integer.parseInt(given[5]));
            case "transact" -> transact(given[2], given[3]);
            case "describe-group" -> describeGroup(given[2]);
            case "delete-group" -> deleteGroup(given[2]);
            case "share" -> share(given[2], given[3], Integer.parseInt(given[4]));
            default -> throw new IllegalArgumentException(given[1]);
        }
    }
}
