"""Turns errors into a page for people or problem details (RFC 7807) for programs, never a traceback."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from litestar import Request, Response
from litestar.exceptions import HTTPException, NotFoundException
from litestar.openapi.datastructures import ResponseSpec

from millstream.core.errors import (
    BrokerUnavailable,
    ConfigError,
    InputError,
    MillstreamError,
    RegistryUnavailable,
    RequestFailed,
)
from millstream.jobs.control import CommandRefused, NoSuchJob
from millstream.jobs.owners import JobRuns
from millstream.views.query import QueryRefused

_log = logging.getLogger(__name__)
MEDIA_TYPE = "application/problem+json"

# The HTTP status for Kafka's error codes, most of which are mistakes in the request. All other codes become
# 502: an error of the broker.
_BY_CODE = {
    -190: 400,  # librdkafka's: no such partition
    1: 404,  # OFFSET_OUT_OF_RANGE
    3: 404,  # UNKNOWN_TOPIC_OR_PARTITION
    10: 400,  # MESSAGE_TOO_LARGE
    16: 503,  # NOT_COORDINATOR
    17: 400,  # INVALID_TOPIC
    29: 403,  # TOPIC_AUTHORIZATION_FAILED
    30: 403,  # GROUP_AUTHORIZATION_FAILED
    31: 403,  # CLUSTER_AUTHORIZATION_FAILED
    36: 409,  # TOPIC_ALREADY_EXISTS
    37: 400,  # INVALID_PARTITIONS
    38: 400,  # INVALID_REPLICATION_FACTOR
    40: 400,  # INVALID_CONFIG
    42: 400,  # INVALID_REQUEST
    44: 409,  # POLICY_VIOLATION
    68: 409,  # NON_EMPTY_GROUP
    69: 404,  # GROUP_ID_NOT_FOUND
    86: 409,  # GROUP_SUBSCRIBED_TO_TOPIC
}


@dataclass(frozen=True, slots=True)
class Problem:
    """Problem details in the format of RFC 7807. ``kafka`` names the broker's error, if it is one."""

    type: str
    title: str
    status: int
    detail: str
    kafka: str | None = None


def problem_of(error: Exception) -> Problem:
    """The problem that an exception means for the client."""
    if isinstance(error, HTTPException):
        said = error.detail
        if isinstance(error, NotFoundException) and said == HTTPStatus.NOT_FOUND.phrase:
            said = "There is nothing at this address."
        extra = error.extra
        if isinstance(extra, list):  # what was wrong with each parameter
            said = "; ".join(f"{each.get('key')}: {each.get('message')}" for each in extra) or said
        return _problem(error.status_code, said)
    if isinstance(error, BrokerUnavailable | RegistryUnavailable):
        return _problem(503, str(error))
    if isinstance(error, RequestFailed):
        return _problem(_BY_CODE.get(error.code, 502), str(error), error.name)
    if isinstance(error, RecursionError):  # from parsing a body: no other input is nested without a bound
        return _problem(400, "what was sent is nested too deeply")
    if isinstance(error, ConfigError | InputError | QueryRefused):
        return _problem(400, str(error))
    if isinstance(error, NoSuchJob):
        return _problem(404, str(error))
    if isinstance(error, JobRuns | CommandRefused):
        return _problem(409, str(error))
    if isinstance(error, MillstreamError):
        return _problem(502, str(error))
    return _problem(500, f"{type(error).__name__}; the console's log says more")


def _problem(status: int, detail: str, kafka: str | None = None) -> Problem:
    return Problem("about:blank", HTTPStatus(status).phrase, status, detail, kafka)


def answer(request: Request[Any, Any, Any], error: Exception) -> Response[Any]:
    """Handle any exception: the response to the request."""
    problem = problem_of(error)
    if problem.status == 500:
        _log.error("%s %s failed; please report this", request.method, request.url.path, exc_info=error)
    headers = dict(error.headers or {}) if isinstance(error, HTTPException) else {}
    if problem.status == 503:
        headers["Retry-After"] = "1"
    if request.url.path.startswith("/api/"):
        return Response(problem, status_code=problem.status, media_type=MEDIA_TYPE, headers=headers)
    backend = request.app.state.backend
    page: Response[str] = backend.problem_page(request, problem)
    page.headers.update(headers)
    return page


def _spec(description: str) -> ResponseSpec:
    return ResponseSpec(Problem, description=description, media_type=MEDIA_TYPE, generate_examples=False)


RESPONSES = {
    400: _spec("The request is not well formed; `detail` says what is wrong."),
    403: _spec("Not allowed: the console is read-only, or the broker does not permit it."),
    404: _spec("It does not exist."),
    409: _spec("The current state does not allow it: a group has members, a job runs, a name is taken."),
    429: _spec("Too much is under way; try again in a moment."),
    502: _spec("The broker, or a database of views, answered with an error."),
    503: _spec("No broker answers at the moment."),
}
