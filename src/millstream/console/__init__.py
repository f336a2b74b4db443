"""The console: what a broker holds and does, in a browser; pages, a REST interface and live updates.

It knows brokers by their address alone, and works on Apache Kafka too: what that lacks is greyed out, with
the reason. May import: ``client``, ``registry``, ``pipeline``. Only the command line imports it. Needs the
extra ``millstream[console]``.

    model/      what screens show, as dataclasses and functions of what a broker told: no HTTP, no asyncio
    sampler     asks the broker once for all viewers, every second or so; ``Observer`` is what it asks with
    asking      everything else that is asked of a broker: blocking calls on a bounded pool of threads
    tails       following topics: threads of its own, so many pages at once
    live        server-sent events: HTML fragments for pages that are open
    pages       templates to HTML; ``units`` are the filters they use
    screens/    one module a screen: its pages, its part of the REST interface, its live fragments
    guards      who may ask (Host, same origin, read-only), and what a page may load
    problems    what went wrong, as a page or as problem details (RFC 7807)
    app, run    the application of all that; served by a process or on a thread

How to add a screen
-------------------
1. ``model/groups.py``: dataclasses (they become the OpenAPI schema) and functions that make them from a
   ``Snapshot`` (what the sampler saw last; costs nothing) or from an ``Admin`` (a question of its own).
2. ``templates/groups.html`` extends ``base.html``, with blocks ``title``, ``above`` (heading, filters) and
   ``content``. What changes while one looks stands in a file of its own, ``templates/groups_table.html``,
   included within ``<div sse-swap="table">{% include "groups_table.html" %}</div>``. A filter that applies
   while one types replaces ``#live``, all of ``content`` and the stream it listens to (``topics.html``).
   Sortable columns and pages are macros of ``table.html``.
3. ``screens/groups.py`` has the handlers, and a ``SCREEN``::

       @get("/groups", include_in_schema=False)
       async def page(
           request: Request, backend: NamedDependency[Backend], search: FromQuery[str] = ""
       ) -> Response[str]:
           shown = group_list(await backend.sampler.first(), search=search)
           return backend.page(request, SCREEN, "groups.html", groups=shown)

       @get("/live/groups", include_in_schema=False)
       async def live(backend: NamedDependency[Backend], search: FromQuery[str] = "") -> Stream:
           def fragments(snapshot: Snapshot) -> dict[str, str]:
               shown = group_list(snapshot, search=search)
               return {"table": backend.fragment("groups_table.html", groups=shown)}
           return backend.live(fragments)

       @get("/api/groups", tags=["groups"])
       async def listed(backend: NamedDependency[Backend], search: FromQuery[str] = "") -> GroupPage:
           return group_list(await backend.sampler.first(), search=search)

       SCREEN = Screen("groups", "Groups", "/groups", shortcut="g", handlers=(page, live, listed))

   A page listens to ``/live`` + its own path and query string, so every filter is a query parameter of both.
   Filters that several handlers share are a dependency (``screens/topics.py``). Litestar reads annotations
   at run time, so no import for them may stand under TYPE_CHECKING; ``query`` is a name of its own.
4. Name the module in ``screens/__init__.py``; the navigation and the keyboard help follow.

- A question that the sampler does not answer: ``await backend.ask(lambda admin: admin.group(name))``. What is
  raised as a MillstreamError becomes a page or problem details with the right status (``problems.py``).
- What changes something is a POST, PUT, PATCH or DELETE; the guards then apply by themselves. One that only
  reads (a query too long for a URL) says ``opt={"reads": True}``. Templates know ``read_only``.
- What needs attention on the overview: a function in ``model/attention.py``'s list of checks.
- No inline script or style, and no ``style=`` attribute: the page's security policy refuses them. A chart is
  ``<div class="chart" data-chart="/api/...">``; its data is columns, as of ``/api/rates`` (console.js).
- Numbers, sizes, durations and times only through the filters of ``units.py``.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from millstream.extras import extra

_EXTRAS = ("litestar", "msgspec", "jinja2", "uvicorn")


def needs_extra() -> AbstractContextManager[None]:
    """Says what to install where an import within fails because it is not there."""
    return extra("console", _EXTRAS, "the console needs")
