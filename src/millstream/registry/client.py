"""Client for a schema registry at a URL: millstream's or Confluent's, with no difference but the URL.

The schema of an id never changes and is requested once. Everything else is requested every time.
"""

from __future__ import annotations

import base64
import http.client
import json
import threading
import time
import urllib.error
import urllib.request
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode, urlsplit, urlunsplit

from millstream.core.errors import ConfigError, RegistryRefused, RegistryUnavailable
from millstream.registry.parsing import parse
from millstream.registry.schema import AVRO, ParsedSchema, Reference, Schema
from millstream.registry.service.store import schema_fields

DEFAULT_URL = "http://127.0.0.1:8081"
_ACCEPT = "application/vnd.schemaregistry.v1+json, application/json"
_MAX_ANSWER = 64 * 1024 * 1024
_PAUSE = 0.2


class Registered(NamedTuple):
    """A version of a subject, with its schema."""

    subject: str
    version: int
    id: int
    schema: Schema


class RegistryClient:
    """Requests to a registry. ``url`` may contain a user and a password. Several threads may use one client.

    If the registry does not answer, the client retries for ``patience`` seconds, then raises
    RegistryUnavailable. If it refuses a request, RegistryRefused is raised with the registry's code.
    """

    def __init__(self, url: str = DEFAULT_URL, *, patience: float = 0.0, timeout: float = 10.0) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"{url!r} is not the address of a schema registry; write it as {DEFAULT_URL}")
        host = parts.netloc.rpartition("@")[2]
        self.url = urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))
        self._headers = {"Accept": _ACCEPT, "Content-Type": "application/vnd.schemaregistry.v1+json"}
        if parts.username is not None:
            login = f"{parts.username}:{parts.password or ''}".encode()
            self._headers["Authorization"] = f"Basic {base64.b64encode(login).decode('ascii')}"
        self._patience = patience
        self._timeout = timeout
        self._known: dict[int, Schema] = {}
        self._parsed: dict[int, ParsedSchema] = {}
        self._lock = threading.Lock()

    # Schemas -----------------------------------------------------------------------------------------

    def schema(self, id_: int) -> Schema:
        """The schema with an id."""
        found = self._known.get(id_)
        if found is None:
            found = self._known[id_] = _schema_of(self._ask("GET", f"/schemas/ids/{id_}"))
        return found

    def parsed(self, id_: int) -> ParsedSchema:
        """The schema with an id, parsed, with all schemas that it refers to."""
        with self._lock:
            found = self._parsed.get(id_)
            if found is None:
                found = self._parsed[id_] = self.parse(self.schema(id_))
            return found

    def parse(self, schema: Schema) -> ParsedSchema:
        """Parse a schema. The schemas that it refers to are fetched from the registry."""
        return parse(schema.type, schema.text, self.dependencies(schema))

    def dependencies(self, schema: Schema) -> tuple[tuple[str, str], ...]:
        """Names and texts of all schemas that a schema refers to, each after those that it needs itself."""
        found: dict[str, str] = {}
        self._collect(schema.references, found, 0)
        return tuple(found.items())

    def _collect(self, references: tuple[Reference, ...], found: dict[str, str], depth: int) -> None:
        if depth > 100:
            raise ConfigError(f"the registry at {self.url} has schemas that refer to each other in a cycle")
        for reference in references:
            if reference.name not in found:
                there = self.version(reference.subject, reference.version).schema
                self._collect(there.references, found, depth + 1)
                found[reference.name] = there.text

    def version(self, subject: str, version: int | str = "latest") -> Registered:
        path = f"/subjects/{quote(subject, safe='')}/versions/{version}"
        # A deleted version may still be referred to.
        answer = self._ask("GET", path, {} if version == "latest" else {"deleted": "true"})
        return Registered(answer["subject"], answer["version"], answer["id"], _schema_of(answer))

    def versions(self, subject: str) -> list[int]:
        return list(self._ask("GET", f"/subjects/{quote(subject, safe='')}/versions"))

    def subjects(self, *, deleted: bool = False) -> list[str]:
        return list(self._ask("GET", "/subjects", {"deleted": "true"} if deleted else {}))

    def register(self, subject: str, schema: Schema, *, normalize: bool = False) -> int:
        """Make a schema a version of a subject, and return its id. Registering it again changes nothing."""
        path = f"/subjects/{quote(subject, safe='')}/versions"
        asked = {"normalize": "true"} if normalize else {}
        return int(self._ask("POST", path, asked, schema_fields(schema))["id"])

    def check(self, subject: str, schema: Schema, version: str | None = None) -> list[str]:
        """Why a schema can't be the next version of a subject; empty if it can."""
        path = f"/compatibility/subjects/{quote(subject, safe='')}/versions"
        path += f"/{version}" if version is not None else ""
        answer = self._ask("POST", path, {"verbose": "true"}, schema_fields(schema))
        return [] if answer["is_compatible"] else list(answer.get("messages") or ["not compatible"])

    def delete(self, subject: str, version: str | None = None, *, permanent: bool = False) -> list[int]:
        path = f"/subjects/{quote(subject, safe='')}" + (
            f"/versions/{version}" if version is not None else ""
        )
        gone = self._ask("DELETE", path, {"permanent": "true"} if permanent else {})
        return gone if isinstance(gone, list) else [gone]

    # Levels ------------------------------------------------------------------------------------------

    def level(self, subject: str | None = None) -> str:
        path = "/config" + (f"/{quote(subject, safe='')}" if subject else "")
        return str(self._ask("GET", path, {"defaultToGlobal": "true"})["compatibilityLevel"])

    def set_level(self, subject: str | None, level: str | None) -> None:
        """Set the level of a subject, or of the registry. A level of None removes the setting."""
        path = "/config" + (f"/{quote(subject, safe='')}" if subject else "")
        if level is None:
            self._ask("DELETE", path)
        else:
            self._ask("PUT", path, {}, {"compatibility": level.upper()})

    # HTTP --------------------------------------------------------------------------------------------

    def _ask(self, method: str, path: str, query: dict[str, str] | None = None, body: Any = None) -> Any:
        address = self.url + path + (f"?{urlencode(query)}" if query else "")
        data = None if body is None else json.dumps(body).encode()
        deadline = time.monotonic() + self._patience
        while True:
            request = urllib.request.Request(address, data, self._headers, method=method)  # noqa: S310
            try:
                with urllib.request.urlopen(request, timeout=self._timeout) as answer:  # noqa: S310
                    return json.loads(answer.read(_MAX_ANSWER))
            except urllib.error.HTTPError as error:
                problem: Exception = self._refusal(error)
                if error.code < 500:
                    raise problem from None
            except (OSError, http.client.HTTPException) as error:
                cause = getattr(error, "reason", None) or error
                reason = getattr(cause, "strerror", None) or cause
                problem = RegistryUnavailable(
                    f"no schema registry answers at {self.url} ({reason});"
                    " start one with `millstream registry`, or pass --registry"
                )
            except ValueError:
                raise RegistryUnavailable(
                    f"{self.url} is not a schema registry: its response is not JSON"
                ) from None
            if time.monotonic() > deadline:
                raise problem from None
            time.sleep(_PAUSE)

    def _refusal(self, error: urllib.error.HTTPError) -> RegistryRefused:
        try:
            said = json.loads(error.read(_MAX_ANSWER))
            return RegistryRefused(int(said["error_code"]), str(said["message"]))
        except (ValueError, KeyError, TypeError, OSError):
            return RegistryRefused(error.code * 100, f"{self.url} answers with HTTP status {error.code}")


def _schema_of(answer: dict[str, Any]) -> Schema:
    return Schema(
        answer.get("schemaType") or AVRO,
        answer["schema"],
        tuple(Reference(r["name"], r["subject"], r["version"]) for r in answer.get("references") or ()),
        answer.get("metadata"),
        answer.get("ruleSet"),
    )
