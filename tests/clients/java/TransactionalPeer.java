import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Kafka's own transactional producer and consumer, driven line by line: a command on standard input, answers on
 * standard output, the last of them beginning with "ok" or "error". The end of the input is a crash: nothing is
 * closed, nothing aborted.
 */
public class TransactionalPeer {
    private final String address;
    private final Map<String, Future<RecordMetadata>> sent = new LinkedHashMap<>();
    private KafkaProducer<String, String> producer;

    TransactionalPeer(String address) {
        this.address = address;
    }

    public static void main(String[] arguments) throws Exception {
        TransactionalPeer peer = new TransactionalPeer(arguments[0]);
        ExecutorService worker = Executors.newSingleThreadExecutor();
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            String[] words = line.split(" ");
            worker.execute(() -> peer.answer(words));
        }
        Runtime.getRuntime().halt(0);  // whatever it is waiting for
    }

    private void answer(String[] words) {
        try {
            System.out.println("ok " + obey(words));
        } catch (Exception error) {
            Throwable cause = error.getCause() == null ? error : error.getCause();
            System.out.println("error " + error.getClass().getSimpleName() + " "
                + cause.getClass().getSimpleName() + " " + String.valueOf(error.getMessage()).replace('\n', ' '));
        }
        System.out.flush();
    }

    private String obey(String[] words) throws Exception {
        switch (words[0]) {
            case "init":
                init(words[1], words[2]);
                return "";
            case "begin":
                sent.clear();
                producer.beginTransaction();
                return "";
            case "send":
                sent.put(words[3], producer.send(new ProducerRecord<>(words[1], Integer.parseInt(words[2]), null, words[3])));
                return "";
            case "flush":
                producer.flush();
                return "";
            case "offset":
                producer.sendOffsetsToTransaction(
                    Map.of(new TopicPartition(words[2], Integer.parseInt(words[3])), new OffsetAndMetadata(Long.parseLong(words[4]))),
                    new ConsumerGroupMetadata(words[1]));
                return "";
            case "commit":
                producer.commitTransaction();
                return places();
            case "abort":
                producer.abortTransaction();
                return "";
            case "read":
                read(words[1], Integer.parseInt(words[2]), words[3]);
                return "";
            default:
                throw new IllegalArgumentException("no such command: " + words[0]);
        }
    }

    private void init(String transactionalId, String timeout) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", address);
        settings.put("transactional.id", transactionalId);
        settings.put("transaction.timeout.ms", timeout);
        settings.put("reconnect.backoff.max.ms", "100");
        settings.put("retry.backoff.ms", "20");
        settings.put("retry.backoff.max.ms", "100");
        producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
        producer.initTransactions();
    }

    /** Where the records of the transaction stand: value=offset. */
    private String places() throws Exception {
        StringBuilder text = new StringBuilder();
        for (Map.Entry<String, Future<RecordMetadata>> each : sent.entrySet())
            text.append(each.getKey()).append('=').append(each.getValue().get().offset()).append(' ');
        return text.toString();
    }

    private void read(String topic, int partitions, String isolation) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", address);
        settings.put("isolation.level", isolation);
        settings.put("enable.auto.commit", "false");
        List<TopicPartition> all =
            IntStream.range(0, partitions).mapToObj(n -> new TopicPartition(topic, n)).collect(Collectors.toList());
        try (KafkaConsumer<String, String> consumer =
                 new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.assign(all);
            consumer.seekToBeginning(all);
            Map<TopicPartition, Long> ends = consumer.endOffsets(all);
            List<ConsumerRecord<String, String>> found = new ArrayList<>();
            while (all.stream().anyMatch(partition -> consumer.position(partition) < ends.get(partition)))
                consumer.poll(Duration.ofMillis(200)).forEach(found::add);
            for (ConsumerRecord<String, String> record : found)
                System.out.println(record.partition() + " " + record.offset() + " " + record.value());
        }
    }
}
