"""Query parameters that several lists share."""

from __future__ import annotations

from typing import Annotated

from litestar.params import QueryParameter

Search = Annotated[str, QueryParameter(max_length=300, description="Words that the name must contain.")]
PageNumber = Annotated[int, QueryParameter(ge=1, le=10**6, description="One beyond the last is the last.")]
