"""Lines of log files taken apart."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.core.errors import ConfigError
from millstream.integration.files.parse import Parsed, parser, time_ms_of

COMMON = b'127.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] "GET /apache_pb.gif HTTP/1.0" 200 2326'
COMBINED = COMMON + b' "http://www.example.com/start.html" "Mozilla/4.08 [en] (Win98; I ;Nav)"'
THEN = 971_211_336_000


def value(parsed: Parsed) -> Any:
    assert parsed.error is None, parsed.error
    return json.loads(parsed.value)


def test_common_log_format() -> None:
    parsed = parser("common")(COMMON)
    assert parsed.time_ms == THEN
    assert value(parsed) == {
        "time": "2000-10-10T20:55:36.000Z",
        "host": "127.0.0.1",
        "ident": None,
        "user": "frank",
        "request": "GET /apache_pb.gif HTTP/1.0",
        "method": "GET",
        "path": "/apache_pb.gif",
        "protocol": "HTTP/1.0",
        "status": 200,
        "bytes": 2326,
    }


def test_combined_log_format_has_referer_and_agent() -> None:
    fields = value(parser("combined")(COMBINED))
    assert fields["referer"] == "http://www.example.com/start.html"
    assert fields["agent"] == "Mozilla/4.08 [en] (Win98; I ;Nav)"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (rb'::1 - - [10/Oct/2000:13:55:36 +0000] "-" 408 -', {"request": "-", "method": None, "bytes": None}),
        (rb'h - - [10/Oct/2000:13:55:36 +0000] "GET /a b HTTP/1.1" 200 1', {"path": "/a b"}),
        (rb'h - - [10/Oct/2000:13:55:36 +0000] "GET /" 200 1', {"path": "/", "protocol": None}),
        (rb'h - a b [10/Oct/2000:13:55:36 +0000] "GET / HTTP/2.0" 200 1', {"user": "a b"}),
        (rb'h - - [10/Oct/2000:13:55:36 +0000] "GET /\"x\" HTTP/1.1" 200 1', {"path": '/"x"'}),
        (rb'h - - [10/Oct/2000:13:55:36 +0000] "\x16\x03\x01" 400 150', {"request": r"\x16\x03\x01"}),
    ],
)
def test_what_clients_send_is_read_all_the_same(line: bytes, expected: dict[str, Any]) -> None:
    fields = value(parser("common")(line))
    assert {name: fields[name] for name in expected} == expected


@pytest.mark.parametrize("line", [b"", b"hello", COMMON + b" more", COMMON.replace(b"Oct", b"Okt")])
def test_a_line_that_is_not_of_the_format_is_kept_with_the_reason(line: bytes) -> None:
    parsed = parser("common")(line)
    assert parsed.error
    assert json.loads(parsed.value) == {"raw": line.decode(), "error": parsed.error}


def test_what_is_not_utf_8_is_kept_byte_by_byte_beside_what_can_be_read() -> None:
    line = COMMON.replace(b"gif", b"\xff\xfe")
    fields = value(parser("common")(line))
    assert fields["path"] == r"/apache_pb.\xff\xfe"
    assert base64.b64decode(fields["raw_base64"]) == line


def test_json_lines_stay_as_they_are_and_their_time_is_found() -> None:
    line = b'{"ts": 971211336,  "a": 1.0}'
    assert parser("json")(line) == Parsed(line, THEN, {"ts": 971211336, "a": 1.0})
    assert parser("json", time_field="at")(b'{"ts": 1, "at": "2000-10-10T20:55:36Z"}').time_ms == THEN
    assert parser("json")(b'{"a": 1}').time_ms is None
    assert parser("json")(b"[1]").error == "not a JSON object"
    assert "not JSON" in (parser("json")(b"{").error or "")


def test_logfmt() -> None:
    parsed = parser("logfmt")(rb'time=2000-10-10T20:55:36Z level=info msg="it \"works\"" retry empty=')
    assert parsed.time_ms == THEN
    assert value(parsed) == {
        "time": "2000-10-10T20:55:36Z",
        "level": "info",
        "msg": 'it "works"',
        "retry": True,
        "empty": "",
    }
    for line in (b"just words here", b'a="unfinished', b"= b"):
        assert parser("logfmt")(line).error


def test_a_regular_expression_of_the_user_s() -> None:
    parse = parser(r"regex:(?P<time>\S+) (?P<level>\w+)(?: (?P<text>.*))?")
    parsed = parse(b"2000-10-10T20:55:36Z WARN")
    assert (parsed.time_ms, value(parsed)["level"], value(parsed)["text"]) == (THEN, "WARN", None)
    assert parse(b"?").error == "does not match the regular expression"


@pytest.mark.parametrize("format", ["apache", "regex:(", "regex:.*", ""])
def test_a_format_that_is_none_is_told(format: str) -> None:
    with pytest.raises(ConfigError, match=r"format|regular expression|named groups"):
        parser(format)


@pytest.mark.parametrize(
    "text",
    ["971211336", "971211336.0", "971211336000", "2000-10-10T20:55:36Z", "2000-10-10 13:55:36-07:00",
     "10/Oct/2000:13:55:36 -0700", "[10/Oct/2000:13:55:36 -0700]", 971211336, 971211336000],
)  # fmt: skip
def test_times_as_log_files_write_them(text: Any) -> None:
    assert time_ms_of(text) == THEN


@pytest.mark.parametrize("text", ["", "yesterday", None, True, [], "nan", -5, "1e300"])
def test_what_is_no_time(text: Any) -> None:
    assert time_ms_of(text) is None


@given(st.sampled_from(["common", "combined", "json", "logfmt", "regex:(?P<a>a.*)"]), st.binary(max_size=60))
def test_any_bytes_are_a_value_or_are_kept_with_an_error(format: str, line: bytes) -> None:
    parsed = parser(format)(line)
    fields = json.loads(parsed.value)
    if parsed.error is not None:
        kept = fields.get("raw_base64")
        assert (base64.b64decode(kept) if kept else fields["raw"].encode()) == line
