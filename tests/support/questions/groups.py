"""Groups of the classic protocol, and their offsets."""

from __future__ import annotations

from typing import Any

from tests.support.questions.asker import Questions

OFFSET_COMMIT = 8
OFFSET_FETCH = 9
JOIN = 11
HEARTBEAT = 12
LEAVE = 13
SYNC = 14
DESCRIBE_GROUPS = 15
LIST_GROUPS = 16
DELETE_GROUPS = 42
OFFSET_DELETE = 47


def _join(q: Questions, question: str, group: str, version: int = 5, **more: Any) -> Any:
    fields = {
        "group_id": group,
        "session_timeout": 10_000,
        "rebalance_timeout": 10_000,
        "member_id": "",
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"\0\1\0\0\0\0\0\0\0\0"}],
        "reason": None,
        **more,
    }
    return q.ask(f"join {version}: {question}", JOIN, version, **fields)


def joining_groups(q: Questions) -> None:
    group = q.name("group")
    _join(q, "no group", "")
    _join(q, "short session", q.name("s"), session_timeout=1)
    _join(q, "long session", q.name("s"), session_timeout=2**31 - 1)
    _join(q, "no protocols", q.name("s"), protocols=[])
    _join(q, "no protocol type", q.name("s"), protocol_type="")
    _join(q, "a member nobody knows, in a group nobody knows", q.name("s"), member_id="nobody")
    for version in range(4):
        # The names of the members differ: each joins a group of its own.
        _join(q, "first", q.name(f"j{version}"), version)
    named = {}
    for version in range(4, 10):
        named[version] = _join(q, "an id is needed", q.name(f"j{version}"), version)
        _join(q, "with the id", q.name(f"j{version}"), version, member_id=named[version].member_id)
    me = _join(q, "in a group", group).member_id
    first = _join(q, "with its id", group, member_id=me)
    _join(q, "as somebody else", group, member_id="nobody")
    other = [{"name": "other", "metadata": b""}]
    _join(q, "with no protocol in common", group, 3, protocols=other)
    _join(q, "of another type", group, 3, protocol_type="connect")

    def sync(question: str, version: int = 5, **more: Any) -> None:
        fields = {
            "group_id": group,
            "generation_id": first.generation_id,
            "member_id": me,
            "group_instance_id": None,
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": [{"member_id": me, "assignment": b"mine"}],
            **more,
        }
        q.ask(f"sync {version}: {question}", SYNC, version, **fields)

    def beat(question: str, **more: Any) -> None:
        fields = {"group_id": group, "generation_id": first.generation_id, "member_id": me, **more}
        q.ask(f"heartbeat: {question}", HEARTBEAT, 4, **{"group_instance_id": None, **fields})

    beat("before it was synced")
    sync("no group", group_id="")
    sync("a group nobody knows", group_id=q.name("nowhere"))
    sync("somebody else", member_id="nobody")
    sync("another generation", generation_id=7)
    sync("generation -1", generation_id=-1)
    sync("another protocol", protocol_name="roundrobin")
    sync("another type", protocol_type="connect")
    sync("no protocol named", protocol_name=None, protocol_type=None)
    sync("an old version", 2)
    sync("again", 5)
    beat("all is well")
    beat("no group", group_id="")
    beat("a group nobody knows", group_id=q.name("nowhere"))
    beat("somebody else", member_id="nobody")
    beat("another generation", generation_id=7)
    beat("an instance that is not there", group_instance_id="i")
    q.ask("describe group", DESCRIBE_GROUPS, 5, groups=[group], include_authorized_operations=True)
    for version in (0, 4, 5, 6):
        names = [q.name("nowhere"), ""]
        fields = {"groups": names, "include_authorized_operations": version >= 3}
        q.ask(f"describe groups {version}: not there", DESCRIBE_GROUPS, version, **fields)
    q.ask(
        "describe groups 5: twice",
        DESCRIBE_GROUPS,
        5,
        groups=[group, group],
        include_authorized_operations=False,
    )
    q.ask(
        "list groups: a state that is not there", LIST_GROUPS, 5, states_filter=["Nowhere"], types_filter=[]
    )
    q.ask("list groups: a type that is not there", LIST_GROUPS, 5, states_filter=[], types_filter=["nothing"])
    q.ask("delete groups: with members", DELETE_GROUPS, 2, groups_names=[group, q.name("nowhere"), ""])
    q.ask("delete groups: twice", DELETE_GROUPS, 2, groups_names=[q.name("nowhere")] * 2)
    q.ask("delete groups: none", DELETE_GROUPS, 2, groups_names=[])

    def leave(question: str, name: str, *members: tuple[str, str | None]) -> None:
        leaving = [{"member_id": m, "group_instance_id": i, "reason": None} for m, i in members]
        q.ask(f"leave: {question}", LEAVE, 5, group_id=name, members=leaving)

    leave("no group", "", (me, None))
    leave("a group nobody knows", q.name("nowhere"), (me, None))
    leave("nobody", group)
    leave("somebody else", group, ("nobody", None))
    leave("an instance that is not there", group, ("", "i"))
    leave("itself, and twice", group, (me, None), (me, None))
    q.ask("leave 2: again", LEAVE, 2, group_id=group, member_id=me)
    q.ask("describe group, empty", DESCRIBE_GROUPS, 5, groups=[group], include_authorized_operations=False)
    q.ask("delete groups: empty", DELETE_GROUPS, 2, groups_names=[group])
    q.ask("delete groups: again", DELETE_GROUPS, 2, groups_names=[group])

    static = q.name("static")
    kept = _join(q, "static", static, group_instance_id="i")
    again = _join(q, "static, again", static, group_instance_id="i")
    _join(q, "static, with the id of before", static, group_instance_id="i", member_id=kept.member_id)
    _join(q, "static, with its id", static, group_instance_id="i", member_id=again.member_id)
    q.ask(
        "leave: static",
        LEAVE,
        5,
        group_id=static,
        members=[{"member_id": "", "group_instance_id": "i", "reason": None}],
    )


def committing_offsets(q: Questions) -> None:
    topic = q.topic("committed", 2)
    group = q.name("offsets")

    def commit(
        question: str, *offsets: dict[str, Any], version: int = 8, name: str = topic, **more: Any
    ) -> None:
        partitions = [
            {
                "partition_index": 0,
                "committed_offset": 3,
                "committed_leader_epoch": -1,
                "committed_metadata": "m",
                **each,
            }
            for each in offsets
        ]
        fields = {
            "group_id": group,
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": [{"name": name, "partitions": partitions}],
            "retention_time": -1,
            **more,
        }
        q.ask(f"commit {version}: {question}", OFFSET_COMMIT, version, **fields)

    for version in range(2, 10):
        commit("an offset", {}, version=version)
    commit("no topics", topics=[])
    commit("no group", {}, group_id="")
    commit("not there", {}, name=q.name("no"))
    commit("bad name", {}, name="a b")
    commit("no such partition", {"partition_index": 9}, {"partition_index": -1}, {})
    commit("offset -1", {"committed_offset": -1})
    commit("offset -5", {"committed_offset": -5})
    commit("no metadata", {"committed_metadata": None})
    commit("long metadata", {"committed_metadata": "x" * 5000}, {"partition_index": 1})
    commit("twice", {"committed_offset": 1}, {"committed_offset": 2})
    commit("a generation", {}, generation_id_or_member_epoch=3)
    commit("a member", {}, member_id="nobody")
    commit("a member and a generation", {}, member_id="nobody", generation_id_or_member_epoch=3)
    for version in (8, 9):
        name = q.name("nowhere")
        commit(
            "a member of no group",
            {},
            version=version,
            group_id=name,
            member_id="x",
            generation_id_or_member_epoch=1,
        )
    commit("with an epoch", {"partition_index": 1, "committed_leader_epoch": 4, "committed_metadata": "é"})

    def fetch(question: str, version: int = 7, group: str = group, topics: Any = None) -> None:
        if version < 8:
            q.ask(f"committed {version}: {question}", OFFSET_FETCH, version, group_id=group, topics=topics)
        else:
            groups = [{"group_id": group, "member_id": None, "member_epoch": -1, "topics": topics}]
            q.ask(f"committed {version}: {question}", OFFSET_FETCH, version, groups=groups)

    some = [
        {"name": topic, "partition_indexes": [0, 1, 9, -1]},
        {"name": q.name("no"), "partition_indexes": [0]},
    ]
    for version in range(1, 10):
        fetch("some", version, topics=some)
    for version in (7, 8, 9):
        fetch("all", version)
        fetch("of nothing", version, topics=[])
        fetch("of no group", version, group=q.name("nowhere"), topics=some)
        fetch("all of no group", version, group=q.name("nowhere"))
        fetch("of a group without a name", version, group="", topics=some)
    fetch("a topic twice", 8, topics=[{"name": topic, "partition_indexes": [0, 0]}] * 2)
    q.ask("committed 9: of no groups", OFFSET_FETCH, 9, groups=[])
    one = {"member_id": None, "member_epoch": -1, "topics": None}
    q.ask("committed 9: of a group twice", OFFSET_FETCH, 9, groups=[{"group_id": group, **one}] * 2)

    def forget(question: str, group: str, name: str, *partitions: int) -> None:
        topics = [{"name": name, "partitions": [{"partition_index": p} for p in partitions]}]
        q.ask(f"forget: {question}", OFFSET_DELETE, 0, group_id=group, topics=topics)

    forget("no group", "", topic, 0)
    forget("a group nobody knows", q.name("nowhere"), topic, 0)
    forget("not there", group, q.name("no"), 0)
    forget("some", group, topic, 0, 9)
    forget("again", group, topic, 0)
    q.ask("forget: nothing", OFFSET_DELETE, 0, group_id=group, topics=[])
    fetch("after that", topics=some)
