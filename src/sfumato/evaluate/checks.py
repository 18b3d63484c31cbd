"""What an evaluation refuses before it begins: anything but releases and people of one description."""

from __future__ import annotations

from sfumato.arguments import expect
from sfumato.domain import Domain
from sfumato.errors import InputError, TableError
from sfumato.evaluate.panel import Panel
from sfumato.evaluate.released import Marginals
from sfumato.evaluate.rows import Rows
from sfumato.model.simulation import seeded

_LARGEST_SEED = (1 << 32) - 1  # that scikit-learn takes


def refuse_wrong_panel(panel: Panel, *, target: str, seed: int) -> None:
    """Refuse what are no people, or a target that is no attribute of theirs.

    Raises:
        InputError, DomainError: as said, or no seed.
    """
    expect(panel, Panel, "the people of an evaluation are a Panel, such as open_panel returns")
    expect(target, str, "a target is the name of an attribute")
    panel.domain.index(target)
    if seeded(seed) > _LARGEST_SEED:
        raise InputError(f"a seed of learners is at most {_LARGEST_SEED}", culprit=seed)


def refuse_wrong_people(people: Rows, domain: Domain) -> None:
    """Refuse what are no rows of people of the domain.

    Raises:
        InputError, TableError: as said.
    """
    expect(people, Rows, "members and controls are Rows, such as those of a Panel")
    _refuse_other_domain(people.domain, domain)


def refuse_wrong_release(release: Marginals, domain: Domain) -> None:
    """Refuse what is no release, or one of another domain.

    Raises:
        InputError, TableError: as said.
    """
    expect(release, Marginals, "a release is rows, answers or reports, such as read_release returns")
    _refuse_other_domain(release.domain, domain)


def _refuse_other_domain(found: Domain, domain: Domain) -> None:
    if found != domain:
        raise TableError("the release and the people are described by different domains", culprit=found)
