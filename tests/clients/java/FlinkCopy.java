import java.util.Properties;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/**
 * Flink in one process: a topic copied to another, exactly once. Its sink pre-commits a transaction with each
 * checkpoint and commits it when the checkpoint is complete; after a restart it takes up transactions of the process
 * before it by their producer id and epoch. Arguments: address, directory for checkpoints, input, output, and the
 * checkpoint to go on from, if any.
 */
public class FlinkCopy {
    public static void main(String[] arguments) throws Exception {
        Configuration settings = new Configuration();
        settings.setString("execution.checkpointing.dir", "file://" + arguments[1]);
        settings.setString("execution.checkpointing.externalized-checkpoint-retention", "RETAIN_ON_CANCELLATION");
        settings.setString("restart-strategy.type", "fixed-delay");
        settings.setString("restart-strategy.fixed-delay.attempts", "1000");
        settings.setString("restart-strategy.fixed-delay.delay", "200 ms");
        if (arguments.length > 4)
            settings.setString("execution.state-recovery.path", arguments[4]);
        StreamExecutionEnvironment environment = StreamExecutionEnvironment.getExecutionEnvironment(settings);
        environment.setParallelism(1);
        environment.enableCheckpointing(500);

        Properties client = new Properties();
        client.setProperty("isolation.level", "read_committed");
        KafkaSource<String> source = KafkaSource.<String>builder()
            .setBootstrapServers(arguments[0])
            .setTopics(arguments[2])
            .setGroupId("flink")
            .setStartingOffsets(OffsetsInitializer.earliest())
            .setValueOnlyDeserializer(new SimpleStringSchema())
            .setProperties(client)
            .build();
        KafkaSink<String> sink = KafkaSink.<String>builder()
            .setBootstrapServers(arguments[0])
            .setRecordSerializer(KafkaRecordSerializationSchema.builder()
                .setTopic(arguments[3])
                .setValueSerializationSchema(new SimpleStringSchema())
                .build())
            .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
            .setTransactionalIdPrefix("flink-copy")
            .setProperty("transaction.timeout.ms", "60000")
            .build();
        environment.fromSource(source, WatermarkStrategy.noWatermarks(), "in").sinkTo(sink);
        environment.execute("copy");
    }
}
