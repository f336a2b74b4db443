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


APIS: dict[int, Api] = {
    0: Api("Produce", 9),
    1: Api("Fetch", 12),
    2: Api("ListOffsets", 6),
    3: Api("Metadata", 9),
    8: Api("OffsetCommit", 8),
    9: Api("OffsetFetch", 6),
    10: Api("FindCoordinator", 3),
    11: Api("JoinGroup", 6),
    12: Api("Heartbeat", 4),
    13: Api("LeaveGroup", 4),
    14: Api("SyncGroup", 4),
    15: Api("DescribeGroups", 5),
    16: Api("ListGroups", 3),
    17: Api("SaslHandshake", NEVER),
    18: Api("ApiVersions", 3),
    19: Api("CreateTopics", 5),
    20: Api("DeleteTopics", 4),
    21: Api("DeleteRecords", 2),
    22: Api("InitProducerId", 2),
    23: Api("OffsetForLeaderEpoch", 4),
    24: Api("AddPartitionsToTxn", 3),
    25: Api("AddOffsetsToTxn", 3),
    26: Api("EndTxn", 3),
    27: Api("WriteTxnMarkers", 1),
    28: Api("TxnOffsetCommit", 3),
    29: Api("DescribeAcls", 2),
    30: Api("CreateAcls", 2),
    31: Api("DeleteAcls", 2),
    32: Api("DescribeConfigs", 4),
    33: Api("AlterConfigs", 2),
    34: Api("AlterReplicaLogDirs", 2),
    35: Api("DescribeLogDirs", 2),
    36: Api("SaslAuthenticate", 2),
    37: Api("CreatePartitions", 2),
    38: Api("CreateDelegationToken", 2),
    39: Api("RenewDelegationToken", 2),
    40: Api("ExpireDelegationToken", 2),
    41: Api("DescribeDelegationToken", 2),
    42: Api("DeleteGroups", 2),
    43: Api("ElectLeaders", 2),
    44: Api("IncrementalAlterConfigs", 1),
    45: Api("AlterPartitionReassignments", 0),
    46: Api("ListPartitionReassignments", 0),
    47: Api("OffsetDelete", NEVER),
    48: Api("DescribeClientQuotas", 1),
    49: Api("AlterClientQuotas", 1),
    50: Api("DescribeUserScramCredentials", 0),
    51: Api("AlterUserScramCredentials", 0),
    52: Api("Vote", 0),
    53: Api("BeginQuorumEpoch", 1),
    54: Api("EndQuorumEpoch", 1),
    55: Api("DescribeQuorum", 0),
    56: Api("AlterPartition", 2),
    57: Api("UpdateFeatures", 0),
    58: Api("Envelope", 0),
    59: Api("FetchSnapshot", 0),
    60: Api("DescribeCluster", 0),
    61: Api("DescribeProducers", 0),
    62: Api("BrokerRegistration", 0),
    63: Api("BrokerHeartbeat", 0),
    64: Api("UnregisterBroker", 0),
    65: Api("DescribeTransactions", 0),
    66: Api("ListTransactions", 0),
    67: Api("AllocateProducerIds", 0),
    68: Api("ConsumerGroupHeartbeat", 0),
    69: Api("ConsumerGroupDescribe", 0),
    70: Api("ControllerRegistration", 0),
    71: Api("GetTelemetrySubscriptions", 0),
    72: Api("PushTelemetry", 0),
    73: Api("AssignReplicasToDirs", 0),
    74: Api("ListConfigResources", 0),
    75: Api("DescribeTopicPartitions", 0),
    76: Api("ShareGroupHeartbeat", 1),
    77: Api("ShareGroupDescribe", 1),
    78: Api("ShareFetch", 1),
    79: Api("ShareAcknowledge", 1),
    80: Api("AddRaftVoter", 0),
    81: Api("RemoveRaftVoter", 0),
    82: Api("UpdateRaftVoter", 0),
    83: Api("InitializeShareGroupState", 0),
    84: Api("ReadShareGroupState", 0),
    85: Api("WriteShareGroupState", 0),
    86: Api("DeleteShareGroupState", 0),
    87: Api("ReadShareGroupStateSummary", 0),
    88: Api("StreamsGroupHeartbeat", 0),
    89: Api("StreamsGroupDescribe", 0),
    90: Api("DescribeShareGroupOffsets", 0),
    91: Api("AlterShareGroupOffsets", 0),
    92: Api("DeleteShareGroupOffsets", 0),
}

# Requests from one millstream broker to another, with keys that Kafka does not use, in the format of
# ``wire.standby``. They are announced only to a standby, because other clients have no use for them.
FOLLOW, COPY_CATALOGUE, AFTER_MISSING, STANDBY_STATUS, PROMOTE, FENCE, LAST_WORD = range(500, 507)
PRIVATE: dict[int, Api] = {
    FOLLOW: Api("Follow", NEVER),
    COPY_CATALOGUE: Api("CopyCatalogue", NEVER),
    AFTER_MISSING: Api("AfterMissing", NEVER),
    STANDBY_STATUS: Api("StandbyStatus", NEVER),
    PROMOTE: Api("Promote", NEVER),
    FENCE: Api("Fence", NEVER),
    LAST_WORD: Api("LastWord", NEVER),
}


def name_of(api_key: int) -> str:
    """The name of a request type, for people; its number if it has no name."""
    api = APIS.get(api_key) or PRIVATE.get(api_key)
    return api.name if api is not None else f"api key {api_key}"


def is_flexible(api_key: int, version: int) -> bool:
    return version >= (APIS.get(api_key) or PRIVATE[api_key]).flexible_from
