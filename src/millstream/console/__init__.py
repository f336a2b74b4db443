"""The web console shows what a broker holds and does: pages, a REST interface and live updates. It knows a
broker by its address alone, so it works on Apache Kafka too: features that the broker lacks are greyed out,
with the reason. It may import ``core``, ``client``, ``registry``, ``views``, ``jobs`` and what draws a
pipeline; only the command line imports it. It needs the extra ``millstream[console]``. Start reading at
``app`` (the application), ``observing`` (what the broker is asked) and ``screens``.

    overview/ topics/ groups/ messages/ pipelines/ views/
                one folder a noun: models (dataclasses and functions of the broker's answers, no HTTP), the
                ``pages`` modules (pages, REST interface, live fragments) and ``templates/``
    observing/  ``sampler`` queries the broker every second or so, once for all viewers, with ``observer``;
                ``request_pool`` sends all other requests: blocking calls on a bounded pool of threads
    live/       ``updates``: server-sent events, HTML fragments for open pages; ``tails``: pages that follow a
                topic, on separate threads, and a bounded number of them
    backend     what every handler uses: the broker, its snapshots, templates to HTML
    units       the filters for numbers in templates; ``views.cells`` has those for values of views
    screens     the screens, in the order of the navigation
    guards      which requests are allowed (Host, same origin, read-only), and what a page may load
    problems    errors, as a page or as problem details (RFC 7807)
    app, run    the application made of all these; served by a process or on a thread

How to add a screen
-------------------
1. ``groups/listing.py``: dataclasses (they become the OpenAPI schema), and functions that make them from a
   ``Snapshot`` (what the sampler saw last, at no cost) or from an ``Admin`` (a separate request).
2. ``groups/templates/groups.html`` extends ``base.html``, with blocks ``title``, ``above`` (heading,
   filters) and ``content``. What changes on an open page is in a separate file,
   ``groups/templates/groups_table.html``, included within ``<div sse-swap="table">{% include
   "groups_table.html" %}</div>``. A filter that applies while the user types replaces ``#live``, which is
   all of ``content`` and the stream that it listens to (``topics.html``). Sortable columns and page links
   are macros of ``table.html``.
3. ``groups/pages.py`` has the handlers, and a ``SCREEN``::

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

   A page listens to ``/live`` + its own path and query string, so every filter is a query parameter of
   both. Filters that several handlers share are a dependency (``topics/listing_pages.py``). Litestar reads
   annotations at run time, so imports for annotations may not be under TYPE_CHECKING. Don't name a
   parameter ``query``: Litestar reserves that name.
4. Name the module in ``screens.py``. The navigation and the keyboard help follow from that.

- To ask what the sampler does not know: ``await backend.ask(lambda admin: admin.group(name))``. A
  MillstreamError that it raises becomes a page or problem details with the right status (``problems.py``).
- A request that changes something is a POST, PUT, PATCH or DELETE; the guards then apply by themselves. One
  that only reads (a query too long for a URL) says ``opt={"reads": True}``. Templates know ``read_only``.
- For the overview's list of what needs attention, add a function to ``CHECKS`` in ``overview/attention.py``.
- No inline script or style, and no ``style=`` attribute: the page's security policy refuses them. A chart is
  ``<div class="chart" data-chart="/api/...">``. Its data is columns, like those of ``/api/rates``
  (console.js).
- Write numbers, sizes, durations and times only with the filters in ``units.py``.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from millstream.core.extras import extra

_EXTRAS = ("litestar", "msgspec", "jinja2", "uvicorn")


def needs_extra() -> AbstractContextManager[None]:
    """A context in which an import that fails for want of a package says what to install."""
    return extra("console", _EXTRAS, "the console needs")
