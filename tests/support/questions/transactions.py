"""Coordinators, producers and their transactions."""

from __future__ import annotations

from typing import Any

from tests.support.questions.asker import Questions

FIND_COORDINATOR = 10
INIT_PRODUCER = 22
ADD_PARTITIONS = 24
ADD_OFFSETS = 25
END_TXN = 26
TXN_COMMIT = 28
DESCRIBE_PRODUCERS = 61
DESCRIBE_TRANSACTIONS = 65


def coordinators_and_producers(q: Questions) -> None:
    for version in (0, 1, 3):
        for kind in (0, 1, 2, 9) if version else (0,):
            fields = {"key": q.name("key"), "key_type": kind}
            q.ask(f"coordinator {version}: of type {kind}", FIND_COORDINATOR, version, **fields)
    for keys in ([], [""], [q.name("a"), q.name("a")], [q.name("a"), q.name("b")]):
        about = [key.replace(q.prefix, "") for key in keys]
        q.ask(f"coordinator 4: of {about}", FIND_COORDINATOR, 4, key_type=0, coordinator_keys=keys)
    q.ask("coordinator 4: of type 9", FIND_COORDINATOR, 4, key_type=9, coordinator_keys=["x"])
    q.ask(
        "coordinator 4: of a transaction without a name",
        FIND_COORDINATOR,
        4,
        key_type=1,
        coordinator_keys=[""],
    )
    q.ask("coordinator 1: without a name", FIND_COORDINATOR, 1, key_type=0, key="")

    def init(question: str, version: int = 4, **fields: Any) -> Any:
        given = {
            "transactional_id": None,
            "transaction_timeout": 60_000,
            "producer_id": -1,
            "producer_epoch": -1,
        }
        return q.ask(f"init {version}: {question}", INIT_PRODUCER, version, **{**given, **fields})

    for version in range(6):
        init("a producer", version)
    init("no timeout", transaction_timeout=0)
    init("an empty id", transactional_id="")
    init("an id without an epoch", producer_id=5)
    init("an epoch without an id", producer_epoch=5)
    init("going on, without a transaction", producer_id=5, producer_epoch=5)
    tx = q.name("tx")
    init("long timeout", transactional_id=tx, transaction_timeout=2**31 - 1)
    init("zero timeout", transactional_id=tx, transaction_timeout=0)
    init("negative timeout", transactional_id=tx, transaction_timeout=-1)
    init("going on as nobody", transactional_id=q.name("unknown"), producer_id=5, producer_epoch=5)
    first = init("transactional", transactional_id=tx)
    second = init("transactional again", transactional_id=tx)
    init(
        "going on as before",
        transactional_id=tx,
        producer_id=first.producer_id,
        producer_epoch=first.producer_epoch,
    )
    init(
        "going on", transactional_id=tx, producer_id=second.producer_id, producer_epoch=second.producer_epoch
    )
    init("going on as another", transactional_id=tx, producer_id=second.producer_id + 1000, producer_epoch=0)


def transactions(q: Questions) -> None:
    topic = q.topic("in-transactions", 2)
    tx, group = q.name("transaction"), q.name("transaction-group")
    given = q.ask("tx: begin", INIT_PRODUCER, 4, transactional_id=tx, transaction_timeout=60_000)
    me = {"producer_id": given.producer_id, "producer_epoch": given.producer_epoch}

    def end(question: str, version: int = 3, **more: Any) -> None:
        q.ask(
            f"end {version}: {question}",
            END_TXN,
            version,
            **{"transactional_id": tx, "committed": True, **me, **more},
        )

    def add(question: str, topics: Any, name: str = tx, **more: Any) -> None:
        who = {f"v3_and_below_{key}": value for key, value in {**me, **more}.items()}
        q.ask(
            f"add: {question}",
            ADD_PARTITIONS,
            3,
            v3_and_below_transactional_id=name,
            v3_and_below_topics=topics,
            **who,
        )

    end("nothing begun")
    end("abort nothing begun", committed=False)
    end("an unknown id", transactional_id=q.name("no"))
    end("an empty id", transactional_id="")
    end("an older epoch", producer_epoch=-1)
    end("a later epoch", producer_epoch=9)
    end("another producer", producer_id=given.producer_id + 1000)
    here = [{"name": topic, "partitions": [0]}]
    add("an unknown id", here, q.name("no"))
    add("an empty id", here, "")
    add("a later epoch", here, producer_epoch=9)
    add("another producer", here, producer_id=given.producer_id + 1000)
    add("not there", [{"name": q.name("no"), "partitions": [0]}, *here])
    add("no such partition", [{"name": topic, "partitions": [0, 9]}])
    add("nothing", [])
    add("one", here)
    add("again", here)
    q.ask("add offsets: an unknown id", ADD_OFFSETS, 3, transactional_id=q.name("no"), group_id=group, **me)
    q.ask("add offsets: no group", ADD_OFFSETS, 3, transactional_id=tx, group_id="", **me)
    q.ask(
        "add offsets: a later epoch",
        ADD_OFFSETS,
        3,
        transactional_id=tx,
        group_id=group,
        producer_id=me["producer_id"],
        producer_epoch=9,
    )
    q.ask("add offsets", ADD_OFFSETS, 3, transactional_id=tx, group_id=group, **me)

    def commit(question: str, name: str = topic, **more: Any) -> None:
        offset = {
            "partition_index": 0,
            "committed_offset": 3,
            "committed_leader_epoch": -1,
            "committed_metadata": "m",
        }
        fields = {
            "transactional_id": tx,
            "group_id": group,
            "generation_id": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": [{"name": name, "partitions": [offset]}],
            **me,
            **more,
        }
        q.ask(f"commit in a transaction: {question}", TXN_COMMIT, 3, **fields)

    commit("no group", group_id="")
    commit("not there", q.name("no"))
    commit("an offset")
    commit("a member", member_id="nobody")
    q.ask("describe transactions", DESCRIBE_TRANSACTIONS, 0, transactional_ids=[q.name("no"), ""])
    q.ask(
        "describe producers: not there",
        DESCRIBE_PRODUCERS,
        0,
        topics=[
            {"name": q.name("no"), "partition_indexes": [0]},
            {"name": topic, "partition_indexes": [9, 1]},
        ],
    )
    end("abort", committed=False)
