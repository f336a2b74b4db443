//! rdkafka (Rust), as the programs that tests/support/programs.py describes.

use std::io::Read;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;

use futures::executor::block_on;
use rdkafka::admin::{
    AdminClient, AdminOptions, AlterConfig, NewPartitions, NewTopic, ResourceSpecifier, TopicReplication,
};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::message::{BorrowedMessage, Header, Headers, Message, OwnedHeaders};
use rdkafka::producer::{FutureProducer, FutureRecord, Producer};
use rdkafka::topic_partition_list::TopicPartitionList;
use rdkafka::types::RDKafkaErrorCode;
use rdkafka::Offset;
use serde_json::{json, Map, Value};

const PATIENCE: Duration = Duration::from_secs(20);

fn config(address: &str) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", address).set("log_level", "0");
    config
}

fn reader(address: &str, group: &str) -> ClientConfig {
    let mut config = config(address);
    config
        .set("group.id", group)
        .set("enable.auto.commit", "false")
        .set("auto.offset.reset", "earliest")
        .set("isolation.level", "read_committed");
    config
}

fn say(what: Value) {
    println!("{what}");
}

fn tell(message: &BorrowedMessage) {
    let text = |bytes: Option<&[u8]>| String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned();
    let header = message.headers().map(|headers| text(headers.get(0).value)).unwrap_or_default();
    say(json!({
        "partition": message.partition(), "offset": message.offset(), "key": text(message.key()),
        "value": text(message.payload()), "header": header,
    }));
}

fn partitions(consumer: &BaseConsumer, topic: &str) -> usize {
    consumer.fetch_metadata(Some(topic), PATIENCE).unwrap().topics()[0].partitions().len()
}

fn administer(address: &str, topic: &str) {
    let admin: AdminClient<DefaultClientContext> = config(address).create().unwrap();
    let looking: BaseConsumer = reader(address, "unused").create().unwrap();
    let options = AdminOptions::new().operation_timeout(Some(PATIENCE));
    let new = NewTopic::new(topic, 2, TopicReplication::Fixed(1)).set("retention.ms", "60000");
    let create = || block_on(admin.create_topics([&new], &options)).unwrap().remove(0);
    create().unwrap();
    let again = create().unwrap_err().1;
    let resource = ResourceSpecifier::Topic(topic);
    let setting = || {
        let described = block_on(admin.describe_configs(&[resource], &options)).unwrap().remove(0).unwrap();
        described.get("retention.ms").unwrap().value.clone()
    };
    let (first, retention) = (partitions(&looking, topic), setting());
    let change = AlterConfig::new(resource).set("retention.ms", "70000");
    block_on(admin.alter_configs(&[change], &options)).unwrap().remove(0).unwrap();
    let altered = setting();
    block_on(admin.create_partitions(&[NewPartitions::new(topic, 3)], &options)).unwrap().remove(0).unwrap();
    let grown = partitions(&looking, topic);
    let all = looking.fetch_metadata(None, PATIENCE).unwrap();
    let listed = all.topics().iter().any(|each| each.name() == topic);
    let delete = || block_on(admin.delete_topics(&[topic], &options)).unwrap().remove(0);
    delete().unwrap();
    let missing = delete().unwrap_err().1;
    say(json!({
        "again": again as i32, "partitions": first, "retention": retention, "altered": altered, "grown": grown,
        "listed": listed, "missing": missing as i32,
    }));
}

async fn produce(address: &str, topic: &str, count: usize, codec: &str) {
    let producer: FutureProducer = config(address)
        .set("enable.idempotence", "true")
        .set("compression.type", codec)
        .set("linger.ms", "5")
        .create()
        .unwrap();
    let mut sent = Vec::new();
    for n in 0..count {
        let (key, value, number) = (format!("k{n}"), format!("v{n}"), n.to_string());
        let headers = OwnedHeaders::new().insert(Header { key: "n", value: Some(&number) });
        let record = FutureRecord::to(topic).partition((n % 2) as i32).key(&key).payload(&value).headers(headers);
        sent.push(producer.send_result(record).unwrap());
    }
    for delivery in sent {
        let told = delivery.await.unwrap().unwrap();
        say(json!({"partition": told.partition, "offset": told.offset}));
    }
}

fn consume(address: &str, group: &str, topic: &str, protocol: &str) {
    let stopped = Arc::new(AtomicBool::new(false));
    let told = stopped.clone();
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        told.store(true, Ordering::Relaxed);
    });
    let consumer: BaseConsumer = reader(address, group).set("group.protocol", protocol).create().unwrap();
    consumer.subscribe(&[topic]).unwrap();
    while !stopped.load(Ordering::Relaxed) {
        match consumer.poll(Duration::from_millis(100)) {
            None => {}
            Some(Err(error)) => eprintln!("poll: {error}"),
            Some(Ok(message)) => {
                tell(&message);
                if let Err(error) = consumer.commit_message(&message, CommitMode::Sync) {
                    eprintln!("commit: {error}"); // a rebalance came between: it is read again
                }
            }
        }
    }
}

fn read(address: &str, topic: &str, partition: i32, place: &str, count: usize) {
    let consumer: BaseConsumer = reader(address, "unused").create().unwrap();
    let mut wanted = TopicPartitionList::new();
    let start = match place.strip_prefix('@') {
        Some(time) => Offset::Offset(time.parse().unwrap()),
        None => Offset::Offset(place.parse().unwrap()),
    };
    wanted.add_partition_offset(topic, partition, start).unwrap();
    if place.starts_with('@') {
        wanted = consumer.offsets_for_times(wanted, PATIENCE).unwrap();
    }
    consumer.assign(&wanted).unwrap();
    for _ in 0..count {
        tell(&consumer.poll(PATIENCE).expect("a record in time").unwrap());
    }
}

async fn transact(address: &str, topic: &str, id: &str) {
    let producer: FutureProducer = config(address).set("transactional.id", id).create().unwrap();
    producer.init_transactions(PATIENCE).unwrap();
    for word in ["yes", "no", "also"] {
        producer.begin_transaction().unwrap();
        for n in 0..2 {
            let value = format!("{word}-{n}");
            let record: FutureRecord<(), String> = FutureRecord::to(topic).partition(0).payload(&value);
            producer.send(record, PATIENCE).await.unwrap();
        }
        if word == "no" {
            producer.abort_transaction(PATIENCE).unwrap();
        } else {
            producer.commit_transaction(PATIENCE).unwrap();
        }
    }
}

fn describe_group(address: &str, group: &str, topic: &str) {
    let consumer: BaseConsumer = reader(address, group).create().unwrap();
    let groups = consumer.fetch_group_list(Some(group), PATIENCE).unwrap();
    let mut wanted = TopicPartitionList::new();
    wanted.add_partition_range(topic, 0, 1);
    let mut offsets = Map::new();
    for each in consumer.committed_offsets(wanted, PATIENCE).unwrap().elements() {
        offsets.insert(each.partition().to_string(), json!(each.offset().to_raw()));
    }
    let found = &groups.groups()[0];
    say(json!({"state": found.state(), "members": found.members().len(), "offsets": offsets}));
}

fn delete_group(address: &str, group: &str) {
    let admin: AdminClient<DefaultClientContext> = config(address).create().unwrap();
    let deleted: Vec<Result<String, (String, RDKafkaErrorCode)>> =
        block_on(admin.delete_groups(&[group], &AdminOptions::new())).unwrap();
    deleted[0].as_ref().unwrap();
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let given: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    match given[..] {
        [address, "administer", topic] => administer(address, topic),
        [address, "produce", topic, count, codec] => {
            runtime.block_on(produce(address, topic, count.parse().unwrap(), codec))
        }
        [address, "consume", group, topic, protocol] => consume(address, group, topic, protocol),
        [address, "read", topic, partition, place, count] => {
            read(address, topic, partition.parse().unwrap(), place, count.parse().unwrap())
        }
        [address, "transact", topic, id] => runtime.block_on(transact(address, topic, id)),
        [address, "describe-group", group, topic] => describe_group(address, group, topic),
        [address, "delete-group", group] => delete_group(address, group),
        _ => panic!("unknown command {given:?}"),
    }
}
