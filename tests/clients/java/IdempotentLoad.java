import java.util.Properties;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * An idempotent producer of numbers that goes on until its standard input ends.
 *
 * Arguments: servers, topic, partitions, records a second, and settings as name=value. Number n goes to partition
 * n % partitions. Every 10 ms it prints what was acknowledged, as "acked first last" (numbers of one partition,
 * one after the other), and "failed number error" for each record that was given up.
 */
public class IdempotentLoad {
    private static final StringBuilder lines = new StringBuilder();
    private static int partitions;
    private static long[] first;
    private static long[] last;

    private static synchronized void acknowledged(long number) {
        int partition = (int) (number % partitions);
        if (last[partition] >= 0 && number != last[partition] + partitions) {
            told(partition);
        }
        if (last[partition] < 0) {
            first[partition] = number;
        }
        last[partition] = number;
    }

    private static void told(int partition) {
        if (last[partition] >= 0) {
            lines.append("acked ").append(first[partition]).append(' ').append(last[partition]).append('\n');
            last[partition] = -1;
        }
    }

    private static synchronized void failed(long number, Exception error) {
        lines.append("failed ").append(number).append(' ').append(error.getClass().getSimpleName()).append(": ")
            .append(String.valueOf(error.getMessage()).replace('\n', ' ')).append('\n');
    }

    private static synchronized void print() {
        for (int partition = 0; partition < partitions; partition++) {
            told(partition);
        }
        System.out.print(lines);
        System.out.flush();
        lines.setLength(0);
    }

    private static void reporting() {
        while (true) {
            LockSupport.parkNanos(10_000_000);
            print();
        }
    }

    public static void main(String[] arguments) throws Exception {
        partitions = Integer.parseInt(arguments[2]);
        long rate = Long.parseLong(arguments[3]);
        first = new long[partitions];
        last = new long[partitions];
        java.util.Arrays.fill(last, -1);
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        properties.put(ProducerConfig.ACKS_CONFIG, "all");
        properties.put(ProducerConfig.LINGER_MS_CONFIG, "2");
        properties.put(ProducerConfig.MAX_BLOCK_MS_CONFIG, "600000");
        for (int i = 4; i < arguments.length; i++) {
            String[] setting = arguments[i].split("=", 2);
            properties.put(setting[0], setting[1]);
        }
        Thread reporter = new Thread(IdempotentLoad::reporting);
        reporter.setDaemon(true);
        reporter.start();
        var serializer = new StringSerializer();
        try (var producer = new KafkaProducer<String, String>(properties, serializer, serializer)) {
            long started = System.nanoTime();
            for (long number = 0; System.in.available() == 0; number++) {
                long n = number;
                producer.send(
                    new ProducerRecord<>(arguments[1], (int) (n % partitions), null, Long.toString(n)),
                    (metadata, error) -> {
                        if (error == null) {
                            acknowledged(n);
                        } else {
                            failed(n, error);
                        }
                    });
                long due = started + number * 1_000_000_000L / rate;
                long early = due - System.nanoTime();
                if (early > 1_000_000) {
                    LockSupport.parkNanos(early);
                }
            }
        }
        print();
        System.out.println("done");
    }
}
