"""All attacks on one release, beside what its guarantee allows."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sfumato.arguments import expect
from sfumato.evaluate.attacks.answer_attacks import TRACING_KNOWLEDGE, tracing_scores
from sfumato.evaluate.attacks.row_attacks import (
    INFERENCE_KNOWLEDGE,
    LINKAGE_KNOWLEDGE,
    MEMBERSHIP_KNOWLEDGE,
    Roc,
    Similarity,
    draw_targets,
    fit_row_attacks,
    guess_members,
    roc,
    test_row_attacks,
)
from sfumato.evaluate.attacks.singling_out import SINGLING_OUT_KNOWLEDGE, singled_out
from sfumato.evaluate.intervals import Advantage, advantage, worst
from sfumato.evaluate.population_split import refuse_wrong_people, refuse_wrong_release
from sfumato.evaluate.released import Claim, MarginalSource, Perturbed, Released, Rows
from sfumato.model.row_sampling import generator, seeded

_PEOPLE = 1000  # of each kind: half of them fit, half of them test


@dataclass(frozen=True, eq=False)
class Attacks:
    """Results of the attacks that apply to a release, and the curve of the membership attack."""

    results: tuple[Advantage, ...]
    curve: Roc

    @property
    def headline(self) -> Advantage:
        """The worst of them, its interval corrected for the choice."""
        return worst(self.results)


def attack(release: MarginalSource, members: Rows, controls: Rows, *, claim: Claim, seed: int) -> Attacks:
    """All attacks that apply to a release: on its rows or reports where it has some, else on its marginals.

    Raises:
        InputError: what is no release, people, claim or seed.
        TableError: too few rows for an interval.
    """
    expect(members, Rows, "members and controls are Rows, such as those of a PopulationSplit")
    for people in (members, controls):
        refuse_wrong_people(people, members.domain)
    refuse_wrong_release(release, members.domain)
    expect(claim, Claim, "what a release promises is a Claim")
    seeded(seed)
    match release:
        case Released():
            return attack_rows(release, members, controls, claim=claim, seed=seed)
        case Perturbed(reports=reports):
            return attack_rows(reports, members, controls, claim=claim, seed=seed)
        case _:
            return attack_marginals(release, members, controls, claim=claim, seed=seed)


def attack_rows(
    release: Released, members: Rows, controls: Rows, *, claim: Claim, people: int = _PEOPLE, seed: int
) -> Attacks:
    """Membership, linkage, attribute inference and singling out against released rows.

    Args:
        release: the rows an outsider sees.
        members: the people it was made from.
        controls: people of the same population, none of them a member.
        claim: what the release promises, for the bounds.
        people: members attacked, and as many controls.
        seed: of the choice of targets and of the attackers' luck.

    Raises:
        TableError: too few rows for an interval.
    """
    luck = generator(seed)
    fitting, testing = draw_targets(members, controls, count=people, generator=luck)
    similarity = Similarity.to(release)
    half = len(testing)
    fitted = fit_row_attacks(similarity, fitting, generator=luck)
    tested = test_row_attacks(similarity, testing, fitted.secret, generator=luck)
    guesses, scores = guess_members(fitted.scores, tested.scores)
    alone = singled_out(release, members, controls, count=half, generator=luck)
    knowledge = INFERENCE_KNOWLEDGE.format(secret=release.domain.names[fitted.secret])
    results = (
        advantage("membership", MEMBERSHIP_KNOWLEDGE, guesses[:half], guesses[half:]),
        advantage("linkage", LINKAGE_KNOWLEDGE, tested.linked[:half], tested.linked[half:]),
        advantage("attribute inference", knowledge, tested.inferred[:half], tested.inferred[half:]),
        advantage("singling out", SINGLING_OUT_KNOWLEDGE, *alone),
    )
    return Attacks(tuple(_bounded(result, claim) for result in results), roc(scores))


def attack_marginals(
    release: MarginalSource, members: Rows, controls: Rows, *, claim: Claim, people: int = _PEOPLE, seed: int
) -> Attacks:
    """Tracing members in published marginals, where there are no rows to link, infer or single out from.

    One half of the controls is the attacker's reference; targets come from the other.
    Arguments and errors are those of ``attack_rows``.
    """
    luck = generator(seed)
    shuffled = controls.sample(len(controls), luck)
    middle = len(shuffled) // 2
    reference = Rows(shuffled.domain, shuffled.codes[:middle])
    rest = Rows(shuffled.domain, shuffled.codes[middle:])
    fit, test = draw_targets(members, rest, count=people, generator=luck)
    traced = [tracing_scores(release, reference, half.stacked) for half in (fit, test)]
    guesses, scores = guess_members((traced[0],), (traced[1],))
    result = advantage("membership", TRACING_KNOWLEDGE, guesses[: len(test)], guesses[len(test) :])
    return Attacks((_bounded(result, claim),), roc(scores))


def _bounded(result: Advantage, claim: Claim) -> Advantage:
    """The bound a guarantee puts on this attack.

    Singling out is about conditions, not about one person's presence: neither bound speaks of it.
    """
    bounds = []
    if claim.loss is not None and result.attack != "singling out":
        bounds.append(claim.loss.advantage_bound())
    if claim.class_size is not None and result.attack == "linkage":
        bounds.append(1 / claim.class_size)
    return replace(result, bound=min(bounds)) if bounds else result
