// kafkajs, as the programs that tests/support/programs.py describes. It compresses by gzip alone.
const { Kafka, logLevel, CompressionTypes } = require('kafkajs')

const [address, command, ...rest] = process.argv.slice(2)
const retry = { retries: 3, initialRetryTime: 100 }
const kafka = new Kafka({ brokers: [address], logLevel: logLevel.NOTHING, retry })
const say = what => process.stdout.write(JSON.stringify(what) + '\n')
const RETENTION = 'retention.ms'

function tell(partition, message) {
  const header = message.headers && message.headers.n ? message.headers.n.toString() : ''
  const key = message.key ? message.key.toString() : ''
  say({ partition, offset: Number(message.offset), key, value: message.value.toString(), header })
}

async function withAdmin(work) {
  const admin = kafka.admin()
  await admin.connect()
  try {
    return await work(admin)
  } finally {
    await admin.disconnect()
  }
}

const commands = {
  administer: topic =>
    withAdmin(async admin => {
      const made = { topic, numPartitions: 2, configEntries: [{ name: RETENTION, value: '60000' }] }
      await admin.createTopics({ topics: [made], waitForLeaders: true })
      const created = await admin.createTopics({ topics: [made] }) // false: it was there
      const setting = async () => {
        const described = await admin.describeConfigs({
          includeSynonyms: false,
          resources: [{ type: 2, name: topic, configNames: [RETENTION] }],
        })
        return described.resources[0].configEntries[0].configValue
      }
      const partitions = async () => (await admin.fetchTopicMetadata({ topics: [topic] })).topics[0].partitions.length
      const said = { again: created ? 0 : 36, partitions: await partitions(), retention: await setting() }
      await admin.alterConfigs({
        validateOnly: false,
        resources: [{ type: 2, name: topic, configEntries: [{ name: RETENTION, value: '70000' }] }],
      })
      said.altered = await setting()
      await admin.createPartitions({ topicPartitions: [{ topic, count: 3 }] })
      said.grown = await partitions()
      said.listed = (await admin.listTopics()).includes(topic)
      await admin.deleteTopics({ topics: [topic] })
      try {
        await admin.deleteTopics({ topics: [topic] })
        said.missing = 0
      } catch (error) {
        said.missing = error.cause.code // it has tried again
      }
      say(said)
    }),

  produce: async (topic, count, codec) => {
    const producer = kafka.producer({ createPartitioner: () => ({ message }) => Number(message.headers.n) % 2 })
    await producer.connect()
    const messages = Array.from({ length: Number(count) }, (_, n) => ({
      key: `k${n}`,
      value: `v${n}`,
      headers: { n: String(n) },
    }))
    const compression = { none: CompressionTypes.None, gzip: CompressionTypes.GZIP }[codec]
    for (const told of await producer.send({ topic, messages, compression, acks: -1 })) {
      say({ partition: told.partition, offset: Number(told.baseOffset) })
    }
    await producer.disconnect()
  },

  consume: async (groupId, topic) => {
    const consumer = kafka.consumer({ groupId, heartbeatInterval: 500, maxWaitTimeInMs: 200 })
    await consumer.connect()
    await consumer.subscribe({ topics: [topic], fromBeginning: true })
    process.stdin.resume()
    const ended = new Promise(resolve => process.stdin.on('end', resolve))
    await consumer.run({
      autoCommit: false,
      eachMessage: async ({ partition, message }) => {
        tell(partition, message)
        await consumer.commitOffsets([{ topic, partition, offset: String(Number(message.offset) + 1) }])
      },
    })
    await ended
    await consumer.disconnect()
  },

  // It has no consumers without a group; the offset is sought once it was given the partition.
  read: async (topic, partition, where, count) => {
    let offset = where
    if (where.startsWith('@')) {
      const found = await withAdmin(admin => admin.fetchTopicOffsetsByTimestamp(topic, Number(where.slice(1))))
      offset = found.find(each => each.partition === Number(partition)).offset
    }
    const consumer = kafka.consumer({ groupId: `read-${topic}-${process.pid}`, readUncommitted: false })
    await consumer.connect()
    await consumer.subscribe({ topics: [topic] })
    let left = Number(count)
    await new Promise(resolve => {
      consumer.run({
        autoCommit: false,
        eachMessage: async ({ partition: of, message }) => {
          if (of !== Number(partition) || Number(message.offset) < Number(offset) || left === 0) return
          tell(of, message)
          if (--left === 0) resolve()
        },
      })
      consumer.seek({ topic, partition: Number(partition), offset })
    })
    await consumer.disconnect()
  },

  transact: async (topic, transactionalId) => {
    const producer = kafka.producer({ transactionalId, idempotent: true, maxInFlightRequests: 1 })
    await producer.connect()
    for (const word of ['yes', 'no', 'also']) {
      const transaction = await producer.transaction()
      for (const n of [0, 1]) {
        await transaction.send({ topic, messages: [{ partition: 0, value: `${word}-${n}` }] })
      }
      await (word === 'no' ? transaction.abort() : transaction.commit())
    }
    await producer.disconnect()
  },

  'describe-group': (groupId, topic) =>
    withAdmin(async admin => {
      const { groups } = await admin.describeGroups([groupId])
      const [of] = await admin.fetchOffsets({ groupId, topics: [topic] })
      const offsets = Object.fromEntries(of.partitions.map(each => [String(each.partition), Number(each.offset)]))
      say({ state: groups[0].state, members: groups[0].members.length, offsets })
    }),

  'delete-group': groupId => withAdmin(admin => admin.deleteGroups([groupId])),
}

commands[command](...rest).catch(error => {
  console.error(error)
  process.exit(1)
})
