from __future__ import annotations

from millstream.client.errors import is_retriable, refused


def test_an_error_code_has_kafkas_name_and_its_retriability() -> None:
    assert str(refused(6, "sending to t[0]")) == (
        "sending to t[0]: not leader or follower (NOT_LEADER_OR_FOLLOWER)"
    )
    assert refused(12345, "x").name == "UNKNOWN_ERROR_12345"
    assert is_retriable(6)
    assert not is_retriable(10)
    assert not is_retriable(12345)
