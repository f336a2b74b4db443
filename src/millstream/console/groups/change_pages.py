"""Moves a consumer group, with a preview, and deletes it or its offsets: forms and the REST interface.

Forms for people and JSON for programs both go through ``changes``. A GET with the whole choice in
the query string shows what a form would do. The POST does it, and redirects to the group.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from litestar import Request, Response, get, post
from litestar import delete as deletes
from litestar.di import NamedDependency, Provide
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter, URLEncodedBody
from litestar.response import Redirect, Stream

from millstream.console.backend import Backend
from millstream.console.groups import changes
from millstream.console.groups.changes import Choice, Deletion, Reset, Target, deletion
from millstream.console.links import group_link, group_named
from millstream.console.observing.snapshot import GroupState
from millstream.console.pipelines.listing import owner_of
from millstream.console.problems import problem_of
from millstream.core.clock import SystemClock
from millstream.core.errors import BrokerUnavailable, ConfigError, MillstreamError
from millstream.jobs.owners import Owner

_GET: Literal[303] = 303  # See Other: the client continues with a GET
_LONGEST_NAME = 32_767  # bytes, in the protocol


async def find_group(backend: Backend, part: str) -> tuple[GroupState, Owner | None]:
    """A group from the last snapshot, and the job whose ledger it is. If it is not in the snapshot, the
    broker is queried now. Raises with the nearest names if there is no such group.
    """
    name = group_named(part)
    snapshot = await backend.sampler.first()
    if name not in snapshot.groups:
        snapshot = await backend.sampler.look_closer_now()
    if name not in snapshot.groups:
        known = name if "\0" not in name and len(name.encode()) <= _LONGEST_NAME else "?"
        raise await backend.ask(lambda admin: admin.unknown_group(known))
    return snapshot.groups[name], owner_of(snapshot, name)


@get(["/live/groups/{name:str}/reset", "/live/groups/{name:str}/delete"], include_in_schema=False)
async def still(backend: NamedDependency[Backend], name: FromPath[str]) -> Stream:
    """Live updates for forms: the forms don't change, but the status of the broker is still sent."""
    return backend.live(lambda snapshot: {})


# Reset -----------------------------------------------------------------------------------------------


async def chosen(
    to: Annotated[Target, QueryParameter(description="Where to.")] = "start",
    value: Annotated[
        str, QueryParameter(max_length=64, description="The offset, the number of records, or the time.")
    ] = "",
    topic: Annotated[str, QueryParameter(max_length=300, description="Of this topic; else of all.")] = "",
    partitions: Annotated[
        str, QueryParameter(max_length=2000, description="Of these partitions, as 0,2-4; else of all.")
    ] = "",
) -> Choice:
    return Choice(to, value, topic, partitions)


_CHOSEN = {"choice": Provide(chosen)}


@get("/groups/{name:str}/reset", include_in_schema=False, dependencies=_CHOSEN)
async def reset_page(
    request: Request[Any, Any, Any],
    backend: NamedDependency[Backend],
    name: FromPath[str],
    choice: NamedDependency[Choice],
) -> Response[str]:
    state, owner = await find_group(backend, name)
    if "to" not in request.query_params:
        return _reset_shown(request, backend, state, choice)
    try:
        planned = await backend.ask(
            lambda admin: changes.preview(admin, state.name, choice, SystemClock(), owner)
        )
    except MillstreamError as error:
        return _reset_shown(request, backend, state, choice, error=error)
    return _reset_shown(request, backend, state, choice, planned=planned)


def _reset_shown(
    request: Request[Any, Any, Any],
    backend: Backend,
    state: GroupState,
    choice: Choice,
    *,
    planned: Reset | None = None,
    error: MillstreamError | None = None,
) -> Response[str]:
    """The form as it was filled in, with its preview or its error."""
    if isinstance(error, BrokerUnavailable):
        raise error
    problem = None if error is None else problem_of(error)
    return backend.page(
        request,
        backend.screen("groups"),
        "group_reset.html",
        status=200 if problem is None else problem.status,
        group=state,
        choice=choice,
        planned=planned,
        problem="" if problem is None else problem.detail,
    )


@post("/groups/{name:str}/reset", include_in_schema=False)
async def reset_form(
    request: Request[Any, Any, Any],
    backend: NamedDependency[Backend],
    name: FromPath[str],
    data: URLEncodedBody[Choice],
) -> Response[Any]:
    state, owner = await find_group(backend, name)
    try:
        done = await backend.ask(lambda admin: changes.reset(admin, state.name, data, SystemClock(), owner))
    except MillstreamError as error:
        return _reset_shown(request, backend, state, data, error=error)
    await backend.sampler.look_closer_now()
    return Redirect(group_link(state.name, done=f"moved:{len(done.partitions)}"), status_code=_GET)


@get(
    "/api/groups/{name:str}/reset",
    tags=["groups"],
    summary="What moving a group would mean; changes nothing",
    dependencies=_CHOSEN,
)
async def previewed(
    backend: NamedDependency[Backend], name: FromPath[str], choice: NamedDependency[Choice]
) -> Reset:
    state, owner = await find_group(backend, name)
    return await backend.ask(lambda admin: changes.preview(admin, state.name, choice, SystemClock(), owner))


@post(
    "/api/groups/{name:str}/reset",
    tags=["groups"],
    summary="Move a group to other offsets; refused while it has members",
    status_code=200,
)
async def reset(backend: NamedDependency[Backend], name: FromPath[str], data: JSONBody[Choice]) -> Reset:
    state, owner = await find_group(backend, name)
    done = await backend.ask(lambda admin: changes.reset(admin, state.name, data, SystemClock(), owner))
    await backend.sampler.look_closer_now()  # the next request must see the new offsets
    return done


# Delete ----------------------------------------------------------------------------------------------


@get("/groups/{name:str}/delete", include_in_schema=False)
async def delete_page(
    request: Request[Any, Any, Any],
    backend: NamedDependency[Backend],
    name: FromPath[str],
    topic: FromQuery[str] = "",
) -> Response[str]:
    state, owner = await find_group(backend, name)
    return _delete_shown(request, backend, deletion(state, topic, owner))


def _delete_shown(
    request: Request[Any, Any, Any], backend: Backend, lost: Deletion, *, problem: str = "", status: int = 200
) -> Response[str]:
    return backend.page(
        request, backend.screen("groups"), "group_delete.html", status=status, lost=lost, problem=problem
    )


@post("/groups/{name:str}/delete", include_in_schema=False)
async def delete_form(
    request: Request[Any, Any, Any],
    backend: NamedDependency[Backend],
    name: FromPath[str],
    data: URLEncodedBody[dict[str, str]],
) -> Response[Any]:
    state, owner = await find_group(backend, name)
    topic = data.get("topic", "")
    try:
        if topic:
            await backend.ask(lambda admin: changes.forget_topic(admin, state.name, topic, owner))
        else:
            await backend.ask(lambda admin: changes.delete(admin, state.name, owner))
    except BrokerUnavailable:
        raise
    except MillstreamError as error:
        problem = problem_of(error)
        return _delete_shown(
            request, backend, deletion(state, topic, owner), problem=problem.detail, status=problem.status
        )
    snapshot = await backend.sampler.look_closer_now()
    if topic and state.name in snapshot.groups:
        return Redirect(group_link(state.name, done=f"forgot:{topic}"), status_code=_GET)
    return Redirect("/groups", query_params={"done": f"deleted:{state.name}"}, status_code=_GET)


@deletes("/api/groups/{name:str}", tags=["groups"], summary="Delete a group with its offsets")
async def delete(backend: NamedDependency[Backend], name: FromPath[str]) -> None:
    state, owner = await find_group(backend, name)
    await backend.ask(lambda admin: changes.delete(admin, state.name, owner))
    await backend.sampler.look_closer_now()


@deletes("/api/groups/{name:str}/offsets", tags=["groups"], summary="Delete a group's offsets of a topic")
async def forget(
    backend: NamedDependency[Backend],
    name: FromPath[str],
    topic: Annotated[str, QueryParameter(min_length=1, max_length=300)],
) -> None:
    state, owner = await find_group(backend, name)
    if topic not in state.topics:
        raise ConfigError(f"{state.name} has committed no offsets of a topic {topic!r}")
    await backend.ask(lambda admin: changes.forget_topic(admin, state.name, topic, owner))
    await backend.sampler.look_closer_now()


HANDLERS = (still, reset_page, reset_form, previewed, reset, delete_page, delete_form, delete, forget)
