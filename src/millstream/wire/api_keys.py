"""All request types of the protocol: their keys, names and first flexible versions.

A flexible version (KIP-482) has compact strings and tagged fields. It has tags in its header too, so this
must be known before a request can be read at all. A test compares the table with kio's schemas. The table is
here so that the hot requests can be served without loading the schemas.
"""

from __future__ import annotations

from typing import NamedTuple

NEVER = 32767


class Api(NamedTuple):
    name: str
    flexible_from: int  # NEVER if no version is


PRODUCE = 0
FETCH = 1
LIST_OFFSETS = 2
METADATA = 3
OFFSET_COMMIT = 8
OFFSET_FETCH = 9
FIND_COORDINATOR = 10
JOIN_GROUP = 11
HEARTBEAT = 12
LEAVE_GROUP = 13
SYNC_GROUP = 14
DESCRIBE_GROUPS = 15
LIST_GROUPS = 16
SASL_HANDSHAKE = 17
API_VERSIONS = 18
CREATE_TOPICS = 19
DELETE_TOPICS = 20
DELETE_RECORDS = 21
INIT_PRODUCER_ID = 22
OFFSET_FOR_LEADER_EPOCH = 23
ADD_PARTITIONS_TO_TXN = 24
ADD_OFFSETS_TO_TXN = 25
END_TXN = 26
WRITE_TXN_MARKERS = 27
TXN_OFFSET_COMMIT = 28
DESCRIBE_ACLS = 29
CREATE_ACLS = 30
DELETE_ACLS = 31
DESCRIBE_CONFIGS = 32
ALTER_CONFIGS = 33
ALTER_REPLICA_LOG_DIRS = 34
DESCRIBE_LOG_DIRS = 35
SASL_AUTHENTICATE = 36
CREATE_PARTITIONS = 37
CREATE_DELEGATION_TOKEN = 38
RENEW_DELEGATION_TOKEN = 39
EXPIRE_DELEGATION_TOKEN = 40
DESCRIBE_DELEGATION_TOKEN = 41
DELETE_GROUPS = 42
ELECT_LEADERS = 43
INCREMENTAL_ALTER_CONFIGS = 44
ALTER_PARTITION_REASSIGNMENTS = 45
LIST_PARTITION_REASSIGNMENTS = 46
OFFSET_DELETE = 47
DESCRIBE_CLIENT_QUOTAS = 48
ALTER_CLIENT_QUOTAS = 49
DESCRIBE_USER_SCRAM_CREDENTIALS = 50
ALTER_USER_SCRAM_CREDENTIALS = 51
VOTE = 52
BEGIN_QUORUM_EPOCH = 53
END_QUORUM_EPOCH = 54
DESCRIBE_QUORUM = 55
ALTER_PARTITION = 56
UPDATE_FEATURES = 57
ENVELOPE = 58
FETCH_SNAPSHOT = 59
DESCRIBE_CLUSTER = 60
DESCRIBE_PRODUCERS = 61
BROKER_REGISTRATION = 62
BROKER_HEARTBEAT = 63
UNREGISTER_BROKER = 64
DESCRIBE_TRANSACTIONS = 65
LIST_TRANSACTIONS = 66
ALLOCATE_PRODUCER_IDS = 67
CONSUMER_GROUP_HEARTBEAT = 68
CONSUMER_GROUP_DESCRIBE = 69
CONTROLLER_REGISTRATION = 70
GET_TELEMETRY_SUBSCRIPTIONS = 71
PUSH_TELEMETRY = 72
ASSIGN_REPLICAS_TO_DIRS = 73
LIST_CONFIG_RESOURCES = 74
DESCRIBE_TOPIC_PARTITIONS = 75
SHARE_GROUP_HEARTBEAT = 76
SHARE_GROUP_DESCRIBE = 77
SHARE_FETCH = 78
SHARE_ACKNOWLEDGE = 79
ADD_RAFT_VOTER = 80
REMOVE_RAFT_VOTER = 81
UPDATE_RAFT_VOTER = 82
INITIALIZE_SHARE_GROUP_STATE = 83
READ_SHARE_GROUP_STATE = 84
WRITE_SHARE_GROUP_STATE = 85
DELETE_SHARE_GROUP_STATE = 86
READ_SHARE_GROUP_STATE_SUMMARY = 87
STREAMS_GROUP_HEARTBEAT = 88
STREAMS_GROUP_DESCRIBE = 89
DESCRIBE_SHARE_GROUP_OFFSETS = 90
ALTER_SHARE_GROUP_OFFSETS = 91
DELETE_SHARE_GROUP_OFFSETS = 92

APIS: dict[int, Api] = {
    PRODUCE: Api("Produce", 9),
    FETCH: Api("Fetch", 12),
    LIST_OFFSETS: Api("ListOffsets", 6),
    METADATA: Api("Metadata", 9),
    OFFSET_COMMIT: Api("OffsetCommit", 8),
    OFFSET_FETCH: Api("OffsetFetch", 6),
    FIND_COORDINATOR: Api("FindCoordinator", 3),
    JOIN_GROUP: Api("JoinGroup", 6),
    HEARTBEAT: Api("Heartbeat", 4),
    LEAVE_GROUP: Api("LeaveGroup", 4),
    SYNC_GROUP: Api("SyncGroup", 4),
    DESCRIBE_GROUPS: Api("DescribeGroups", 5),
    LIST_GROUPS: Api("ListGroups", 3),
    SASL_HANDSHAKE: Api("SaslHandshake", NEVER),
    API_VERSIONS: Api("ApiVersions", 3),
    CREATE_TOPICS: Api("CreateTopics", 5),
    DELETE_TOPICS: Api("DeleteTopics", 4),
    DELETE_RECORDS: Api("DeleteRecords", 2),
    INIT_PRODUCER_ID: Api("InitProducerId", 2),
    OFFSET_FOR_LEADER_EPOCH: Api("OffsetForLeaderEpoch", 4),
    ADD_PARTITIONS_TO_TXN: Api("AddPartitionsToTxn", 3),
    ADD_OFFSETS_TO_TXN: Api("AddOffsetsToTxn", 3),
    END_TXN: Api("EndTxn", 3),
    WRITE_TXN_MARKERS: Api("WriteTxnMarkers", 1),
    TXN_OFFSET_COMMIT: Api("TxnOffsetCommit", 3),
    DESCRIBE_ACLS: Api("DescribeAcls", 2),
    CREATE_ACLS: Api("CreateAcls", 2),
    DELETE_ACLS: Api("DeleteAcls", 2),
    DESCRIBE_CONFIGS: Api("DescribeConfigs", 4),
    ALTER_CONFIGS: Api("AlterConfigs", 2),
    ALTER_REPLICA_LOG_DIRS: Api("AlterReplicaLogDirs", 2),
    DESCRIBE_LOG_DIRS: Api("DescribeLogDirs", 2),
    SASL_AUTHENTICATE: Api("SaslAuthenticate", 2),
    CREATE_PARTITIONS: Api("CreatePartitions", 2),
    CREATE_DELEGATION_TOKEN: Api("CreateDelegationToken", 2),
    RENEW_DELEGATION_TOKEN: Api("RenewDelegationToken", 2),
    EXPIRE_DELEGATION_TOKEN: Api("ExpireDelegationToken", 2),
    DESCRIBE_DELEGATION_TOKEN: Api("DescribeDelegationToken", 2),
    DELETE_GROUPS: Api("DeleteGroups", 2),
    ELECT_LEADERS: Api("ElectLeaders", 2),
    INCREMENTAL_ALTER_CONFIGS: Api("IncrementalAlterConfigs", 1),
    ALTER_PARTITION_REASSIGNMENTS: Api("AlterPartitionReassignments", 0),
    LIST_PARTITION_REASSIGNMENTS: Api("ListPartitionReassignments", 0),
    OFFSET_DELETE: Api("OffsetDelete", NEVER),
    DESCRIBE_CLIENT_QUOTAS: Api("DescribeClientQuotas", 1),
    ALTER_CLIENT_QUOTAS: Api("AlterClientQuotas", 1),
    DESCRIBE_USER_SCRAM_CREDENTIALS: Api("DescribeUserScramCredentials", 0),
    ALTER_USER_SCRAM_CREDENTIALS: Api("AlterUserScramCredentials", 0),
    VOTE: Api("Vote", 0),
    BEGIN_QUORUM_EPOCH: Api("BeginQuorumEpoch", 1),
    END_QUORUM_EPOCH: Api("EndQuorumEpoch", 1),
    DESCRIBE_QUORUM: Api("DescribeQuorum", 0),
    ALTER_PARTITION: Api("AlterPartition", 2),
    UPDATE_FEATURES: Api("UpdateFeatures", 0),
    ENVELOPE: Api("Envelope", 0),
    FETCH_SNAPSHOT: Api("FetchSnapshot", 0),
    DESCRIBE_CLUSTER: Api("DescribeCluster", 0),
    DESCRIBE_PRODUCERS: Api("DescribeProducers", 0),
    BROKER_REGISTRATION: Api("BrokerRegistration", 0),
    BROKER_HEARTBEAT: Api("BrokerHeartbeat", 0),
    UNREGISTER_BROKER: Api("UnregisterBroker", 0),
    DESCRIBE_TRANSACTIONS: Api("DescribeTransactions", 0),
    LIST_TRANSACTIONS: Api("ListTransactions", 0),
    ALLOCATE_PRODUCER_IDS: Api("AllocateProducerIds", 0),
    CONSUMER_GROUP_HEARTBEAT: Api("ConsumerGroupHeartbeat", 0),
    CONSUMER_GROUP_DESCRIBE: Api("ConsumerGroupDescribe", 0),
    CONTROLLER_REGISTRATION: Api("ControllerRegistration", 0),
    GET_TELEMETRY_SUBSCRIPTIONS: Api("GetTelemetrySubscriptions", 0),
    PUSH_TELEMETRY: Api("PushTelemetry", 0),
    ASSIGN_REPLICAS_TO_DIRS: Api("AssignReplicasToDirs", 0),
    LIST_CONFIG_RESOURCES: Api("ListConfigResources", 0),
    DESCRIBE_TOPIC_PARTITIONS: Api("DescribeTopicPartitions", 0),
    SHARE_GROUP_HEARTBEAT: Api("ShareGroupHeartbeat", 1),
    SHARE_GROUP_DESCRIBE: Api("ShareGroupDescribe", 1),
    SHARE_FETCH: Api("ShareFetch", 1),
    SHARE_ACKNOWLEDGE: Api("ShareAcknowledge", 1),
    ADD_RAFT_VOTER: Api("AddRaftVoter", 0),
    REMOVE_RAFT_VOTER: Api("RemoveRaftVoter", 0),
    UPDATE_RAFT_VOTER: Api("UpdateRaftVoter", 0),
    INITIALIZE_SHARE_GROUP_STATE: Api("InitializeShareGroupState", 0),
    READ_SHARE_GROUP_STATE: Api("ReadShareGroupState", 0),
    WRITE_SHARE_GROUP_STATE: Api("WriteShareGroupState", 0),
    DELETE_SHARE_GROUP_STATE: Api("DeleteShareGroupState", 0),
    READ_SHARE_GROUP_STATE_SUMMARY: Api("ReadShareGroupStateSummary", 0),
    STREAMS_GROUP_HEARTBEAT: Api("StreamsGroupHeartbeat", 0),
    STREAMS_GROUP_DESCRIBE: Api("StreamsGroupDescribe", 0),
    DESCRIBE_SHARE_GROUP_OFFSETS: Api("DescribeShareGroupOffsets", 0),
    ALTER_SHARE_GROUP_OFFSETS: Api("AlterShareGroupOffsets", 0),
    DELETE_SHARE_GROUP_OFFSETS: Api("DeleteShareGroupOffsets", 0),
}

# Requests from one millstream broker to another, with keys that Kafka does not use, in the format of
# ``wire.standby``. They are announced only to a standby, because other clients have no use for them.
FOLLOW, COPY_CATALOGUE, AFTER_MISSING, STANDBY_STATUS, PROMOTE, FENCE, LATEST_REPORT = range(500, 507)
PRIVATE: dict[int, Api] = {
    FOLLOW: Api("Follow", NEVER),
    COPY_CATALOGUE: Api("CopyCatalogue", NEVER),
    AFTER_MISSING: Api("AfterMissing", NEVER),
    STANDBY_STATUS: Api("StandbyStatus", NEVER),
    PROMOTE: Api("Promote", NEVER),
    FENCE: Api("Fence", NEVER),
    LATEST_REPORT: Api("LatestReport", NEVER),
}


def name_of(api_key: int) -> str:
    """The name of a request type, for people; its number if it has no name."""
    api = APIS.get(api_key) or PRIVATE.get(api_key)
    return api.name if api is not None else f"api key {api_key}"


def is_flexible(api_key: int, version: int) -> bool:
    return version >= (APIS.get(api_key) or PRIVATE[api_key]).flexible_from
