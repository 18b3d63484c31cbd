"""What requests for anonymised tables look like."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from sfumato.anonymize.hierarchy_file import parse
from sfumato.app.anonymizing import Method, MissingValues, Wanted, check, criteria, quasi_identifiers
from sfumato.app.http.forms import Form, Name, Number
from sfumato.errors import InputError

_MOST_SECONDS = 86_400


class AnonymizeForm(Form):
    """An anonymised table to make in the background: what ``sfumato anonymize`` takes.

    ``hierarchies`` are documents with ``attribute`` and ``rows``, leaf first and top last; ``criteria`` go beyond
    k-anonymity and are spelled as on the command line; ``seconds`` end the optimal search early.
    """

    method: Literal["optimal", "samarati", "mondrian", "k-member"]
    quasi: Annotated[list[Name], Field(min_length=1, max_length=64)]
    k: Annotated[int, Field(ge=1, le=10**9)]
    suppression: Number = "0"
    criteria: Annotated[list[Annotated[str, Field(max_length=500)]], Field(max_length=32, default_factory=list)]
    keep: Annotated[list[Name], Field(max_length=64, default_factory=list)]
    missing: Literal["category", "suppress"] = "category"
    hierarchies: Annotated[list[dict[str, Any]], Field(max_length=64, default_factory=list)]
    seconds: Annotated[float, Field(ge=0, le=_MOST_SECONDS, allow_inf_nan=False)] | None = None

    def read(self) -> tuple[Method, Wanted]:
        """The method, and what is asked of it.

        Raises:
            SfumatoError: what no table could be anonymised by, or the method has no use for.
        """
        hierarchies = {each.attribute: each for each in map(parse, self.hierarchies)}
        if len(hierarchies) != len(self.hierarchies) or not set(hierarchies) <= set(self.quasi):
            raise InputError("give each quasi-identifier one hierarchy at most, and nothing else")
        quasi = quasi_identifiers(self.quasi, hierarchies, MissingValues(self.missing))
        wanted = Wanted(quasi, criteria(self.k, self.criteria), self.suppression, tuple(self.keep), self.seconds)
        method = Method(self.method)
        check(method, wanted)
        return method, wanted
