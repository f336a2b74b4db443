"""Protobuf schemas: text or descriptor, what is kept, and which changes let old data be read."""

from __future__ import annotations

import base64

import pytest
from google.protobuf import descriptor_pb2

from millstream.core.errors import InvalidSchema
from millstream.registry.parsing import parse
from millstream.registry.protobuf.diff import changes
from millstream.registry.protobuf.schema import ProtobufSchema

HEAD = 'syntax = "proto3"; package p; '


def proto(text: str, *dependencies: tuple[str, str]) -> ProtobufSchema:
    found = parse("PROTOBUF", text, dependencies)
    assert isinstance(found, ProtobufSchema)
    return found


RICH = """
syntax = "proto2";
package shop;
import "google/protobuf/timestamp.proto";
import public "other.proto";
option java_package = "com.shop\\"x";
message Order {
  option deprecated = true;
  required string id = 1 [default = "a\\tb", json_name = "ID"];
  optional bytes raw = 2 [default = "\\001x"];
  repeated int32 ns = 3 [packed = true];
  map<string, Line> lines = 4;
  optional Status status = 5 [default = PAID];
  oneof how { google.protobuf.Timestamp at = 6; Other other = 7; }
  optional group Extra = 8 { optional double d = 1 [default = inf]; }
  extensions 100 to 199, 500;
  reserved 50 to 60, 70, 800 to max;
  reserved "old", "older";
  message Line { optional string sku = 1; }
  enum Status {
    option allow_alias = true;
    NEW = 0; PAID = 1; DONE = 1 [deprecated = true];
    reserved 9 to 11, 20 to max;
  }
}
extend Order { optional string note = 100; }
service Shop {
  rpc Buy (Order) returns (stream Order);
  rpc Old (Order) returns (Order) { option deprecated = true; }
}
"""
OTHER = ("other.proto", 'syntax = "proto2"; package shop; message Other { optional int32 n = 1; }')


def test_what_is_kept_is_written_from_the_descriptor_without_loss() -> None:
    rich = proto(RICH, OTHER)
    kept = rich.canonical()
    assert kept != RICH.strip()
    assert "// " not in kept
    assert proto(kept, OTHER).canonical() == kept
    assert proto(rich.serialized(), OTHER).canonical() == kept, "sent as a descriptor, it is the same schema"
    assert proto(rich.normalized(), OTHER).normalized() == rich.normalized()


def test_a_file_that_can_not_be_written_back_is_kept_as_it_came() -> None:
    text = 'edition = "2023"; package p; message M { int32 a = 1; }'
    assert proto(text).canonical() == text
    options = """
        syntax = "proto3";
        import "google/protobuf/descriptor.proto";
        extend google.protobuf.FieldOptions { string mine = 50000; }
        message M { string a = 1 [(mine) = "x"]; }
    """
    assert '[(mine) = "x"]' in proto(options).canonical()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no message"),
        ("hello", "line 1"),
        (HEAD + "message M { int32 a = 1; int32 b = 1; }", "line 1: Field number 1 has already been used"),
        (HEAD + "message M { Nothing a = 1; }", '"Nothing" is not defined'),
        (HEAD + 'import "nowhere.proto"; message M {}', "nowhere.proto"),
        (HEAD + 'import "../../etc/passwd"; message M {}', "not allowed in the virtual path"),
    ],
)
def test_what_is_not_a_proto_file_is_told_with_its_line(text: str, said: str) -> None:
    with pytest.raises(InvalidSchema, match=said.replace("(", r"\(")):
        proto(text)


@pytest.mark.parametrize("name", ["../up.proto", "/etc/x.proto", "a//b.proto", "", "a\\b.proto"])
def test_the_name_of_an_import_leads_nowhere_else(name: str) -> None:
    with pytest.raises(InvalidSchema, match="can't be the name"):
        proto(HEAD + "message M {}", (name, HEAD + "message N {}"))


def test_a_descriptor_that_is_not_whole_is_refused() -> None:
    file = descriptor_pb2.FileDescriptorProto(name="x.proto", syntax="proto3")
    field = file.message_type.add(name="M").field.add(name="f", number=1, type=11, label=1)
    field.type_name = ".gone.Message"
    with pytest.raises(InvalidSchema, match="incomplete"):
        proto(base64.b64encode(file.SerializeToString()).decode())
    file.dependency.append("missing.proto")
    with pytest.raises(InvalidSchema, match=r"imports 'missing.proto'"):
        proto(base64.b64encode(file.SerializeToString()).decode())


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        ("message M { int32 a = 1; }", "message M { int64 b = 1; }", "FIELD_NAME_CHANGED #/M/1"),
        ("message M { int32 a = 1; }", "message M { string a = 1; }", "FIELD_SCALAR_KIND_CHANGED #/M/1"),
        ("message M { int32 a = 1; }", "message M { sint32 a = 1; }", "FIELD_SCALAR_KIND_CHANGED #/M/1"),
        ("message M { int32 a = 1; }", "message M { repeated int32 a = 1; }",
         "FIELD_NUMERIC_LABEL_CHANGED #/M/1"),
        ("message M { string a = 1; }", "message M { }", "FIELD_REMOVED #/M/1"),
        ("message M { }", "message M { string a = 1; }", "FIELD_ADDED #/M/1"),
        ("message M { } message N { }", "message M { }", "MESSAGE_REMOVED #/N"),
        ("message M { int32 a = 1; int32 b = 2; }", "message M { oneof o { int32 a = 1; int32 b = 2; } }",
         "MULTIPLE_FIELDS_MOVED_TO_ONEOF #/M/o"),
        ("message M { oneof o { int32 a = 1; int32 b = 2; } }", "message M { oneof o { int32 a = 1; } }",
         "ONEOF_FIELD_REMOVED #/M/o/2"),
        ("message M { map<string, int32> a = 1; }", "message M { map<string, string> a = 1; }",
         "FIELD_SCALAR_KIND_CHANGED #/M/1"),
    ],
)  # fmt: skip
def test_what_changed_is_found_by_number(before: str, after: str, found: str) -> None:
    kinds = [f"{kind} {path}" for kind, path in changes(proto(HEAD + before), proto(HEAD + after))]
    assert found in kinds
    problems = [str(each) for each in proto(HEAD + after).problems_reading(proto(HEAD + before))]
    harmless = found.split()[0] in ("FIELD_NAME_CHANGED", "FIELD_REMOVED", "FIELD_ADDED")
    assert bool(problems) != harmless


def test_a_field_that_becomes_required_breaks_older_data() -> None:
    head = 'syntax = "proto2"; '
    before, after = (
        proto(head + f"message M {{ {label} string a = 1; }}") for label in ("optional", "required")
    )
    assert [each.kind for each in after.problems_reading(before)] == ["REQUIRED_FIELD_ADDED"]
    assert before.problems_reading(after) == []
