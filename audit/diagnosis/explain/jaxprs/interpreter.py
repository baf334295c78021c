"""Both sides of a program in lockstep over its jaxpr, on the same random draws."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Sequence
from typing import Any

import jax.extend.core as jax_core
import jax.numpy as jnp
import numpy as np

from audit.diagnosis.explain.broken_off import why_ended
from audit.diagnosis.explain.findings import Finding, Kind
from audit.diagnosis.explain.jaxprs import pairing
from audit.diagnosis.explain.jaxprs.answers_by_coins import may_leave_noise_out
from audit.diagnosis.explain.jaxprs.axes import FILLING
from audit.diagnosis.explain.jaxprs.drawn_choices import LAWS, Choices, Forced, Rate, rate_of
from audit.diagnosis.explain.jaxprs.equations import (
    CALLBACKS,
    CALLS,
    COMPARISONS,
    COUNTERS,
    DERIVE_KEYS,
    INDEPENDENT,
    LOOPS,
    ON_DEVICES,
    CannotFollowError,
    FirstRoundEnded,
    Within,
    draws,
    file_of,
    inside,
    is_derived,
    place_of,
    shapes,
)
from audit.diagnosis.explain.jaxprs.evaluate import RUNNING, evaluate
from audit.diagnosis.explain.jaxprs.facts import Slot
from audit.diagnosis.explain.jaxprs.key_hands import RANDOM
from audit.diagnosis.explain.jaxprs.key_words import is_key
from audit.diagnosis.explain.jaxprs.keys import Keys, Use, copied_at
from audit.diagnosis.explain.jaxprs.labels import chosen_unseen, combined, labelled
from audit.diagnosis.explain.jaxprs.loops import follow_scan, follow_while
from audit.diagnosis.explain.jaxprs.noise import variance_of_call
from audit.diagnosis.explain.jaxprs.noise_meets_data import Meetings
from audit.diagnosis.explain.jaxprs.pairing import chosen
from audit.diagnosis.explain.jaxprs.record_shares import Company
from audit.diagnosis.explain.jaxprs.value import COUNT, Value, host, lost_at
from audit.diagnosis.explain.jaxprs.weights import SAME_NUMBERS, even_along
from audit.diagnosis.explain.places import Frame, Place, Reader, calls_of, spelled
from audit.diagnosis.explain.sentences import found, led
from audit.trials.library_files import is_library
from mechanisms.adapters.watched_calls import replaced


class Lockstep:
    """One run of both sides."""

    def __init__(
        self,
        *,
        counts: tuple[int, int],
        group: int,
        company: Company | None = None,
        first_round: bool = False,
        forced: Forced | None = None,
    ):
        self.counts, self.group, self.company, self.forced = counts, group, company, forced
        self.first_round = first_round
        """Whether the run ends where data meet a release."""
        self.findings: dict[Finding, None] = {}
        self.opaque: dict[str, None] = {}
        self.draws: set[Place] = set()
        self.keyed_by_records = False
        """Whether a record's numbers depend on what it holds: with another record in its place they are others."""
        self.untaken: dict[Place, set[int]] = {}
        """Branches that coins choose, and did not in this run, by the place of the choice."""
        self.constant_choice: Place | None = None
        """Where a key is made that is the same in every run and that a number for each record is drawn from."""
        self.choices = Choices()
        self.left_to_a_coin: Place | None = None
        """Where a coin chooses between a release and data without noise."""
        self.rounded: Place | None = None
        """Where a sum over records changes by less than its rounding."""
        self.divided: Place | None = None
        """Where something is divided by the number of records in a drawn batch."""
        self.lined_up: Place | None = None
        """Where side a got rows in another order than its program has them, so that they stand like side b's."""
        self.keys = Keys(find=self.find)
        self.meetings = Meetings(find=self.find, same_noise=self.keys.same_noise, too_few=self.keys.too_few)
        self.laplace: set[int] = set()
        """Draws of Laplace noise."""
        self._rates: dict[Place, Rate] = {}
        """Of comparisons with drawn numbers that the number of records changes, by the draw."""
        self._holders: set[Reader] = set()
        """Functions of the user's that were running while what records hold was read, and not their number alone."""
        self.path: tuple[int, ...] = ()
        self._derived = False
        self._rejects = False
        """Whether a loop of ``jax.random`` runs, as for a binomial number: its draws are no noise, no choice."""
        self._met_records: set[Frame | None] = set()
        """Lines of constant keys whose numbers are initial weights, or else multiply what records hold."""
        self._passed: collections.Counter[Slot] = collections.Counter()

    def find(self, finding: Finding) -> None:
        """Keep a finding, once."""
        self.findings.setdefault(finding)

    def run(
        self, a: Any, b: Any, ins: Sequence[Value], ins_b: Sequence[Value] | None = None, within: Within | None = None
    ) -> list[Value]:
        """The outputs of a closed jaxpr, or of an open one without constants; the sides may take different inputs."""
        consts = pairing.constants(getattr(a, "consts", ()), getattr(b, "consts", ()))
        a, b = getattr(a, "jaxpr", a), getattr(b, "jaxpr", b)
        picks = pairing.Picks(a, b)
        ins = list(map(picks.see, a.invars, ins))
        env_a = dict(zip([*a.constvars, *a.invars], [*consts[0], *ins], strict=True))
        env_b = dict(zip([*b.constvars, *b.invars], [*consts[1], *(ins if ins_b is None else ins_b)], strict=True))

        def read(one: Any, other: Any, place: Place | None) -> Value:
            left, right = pairing.value_of(env_a, one), pairing.value_of(env_b, other)
            if left is not right and isinstance(one, jax_core.Literal) and isinstance(other, jax_core.Literal):
                return pairing.constant(left.a, right.b)
            return combined(left, right, place)

        def take(one: Any, other: Any, place: Place) -> None:
            if one is None:
                # only the side with more records has this equation
                ins = [pairing.alone(pairing.value_of(env_b, atom)) for atom in other.invars]
                with replaced(self.meetings, "larger_alone", True):
                    outs = self._equation(other, other, ins, ins, within)
                env_b.update(zip(other.outvars, outs, strict=True))
                return
            if other is None:
                ins = [pairing.alone(pairing.value_of(env_a, atom), side="a") for atom in one.invars]
                env_a.update(zip(one.outvars, self._equation(one, one, ins, ins, within), strict=True))
                return
            if len(one.invars) == len(other.invars):
                ins = ins_b = [read(left, right, place) for left, right in zip(one.invars, other.invars, strict=True)]
            else:
                # constants that one side alone has, or has twice
                ins, ins_b = (
                    [pairing.value_of(env_a, x) for x in one.invars],
                    [pairing.value_of(env_b, x) for x in other.invars],
                )
            outs = self._equation(one, other, ins, ins_b, within)
            outs = list(map(picks.see, one.outvars, outs))
            env_a.update(zip(one.outvars, outs, strict=True))
            env_b.update(zip(other.outvars, outs, strict=True))

        for one, other, place in pairing.aligned(a, b, within):
            try:
                take(one, other, place)
            except (CannotFollowError, FirstRoundEnded):
                raise
            except Exception as error:
                # the innermost one names its line
                raise CannotFollowError(why_ended(error, place, RUNNING), place) from error
        return [read(left, right, None) for left, right in zip(a.outvars, b.outvars, strict=True)]

    def _equation(
        self, one: Any, other: Any, ins: list[Value], ins_b: list[Value], within: Within | None
    ) -> list[Value]:
        name = one.primitive.name
        place = place_of(one, within)
        if name in CALLS:
            return self._call(one, other, ins, ins_b, within)
        if name == "cond":
            return self._cond(one, other, ins, ins_b, within)
        if name in LOOPS:
            same = not any(value.random or value.differs for value in (*ins, *ins_b)) and shapes(one) == shapes(other)
            loop = follow_scan if name == "scan" else follow_while
            rejects = name == "while" and place.entered is not None and place.entered[0] == RANDOM
            with replaced(self, "_rejects", self._rejects or rejects):
                return self.apart(one, other, ins, ins_b, place) if same else loop(self, one, other, ins, ins_b, within)
        if (kept := chosen(name, ins)) is not None:
            self.keys.thrown_away(frozenset().union(*(value.drawn for value in ins)) - kept.drawn)
            return [dataclasses.replace(kept, at=kept.at or place, way=(*kept.way, place) if kept.differs else ())]
        if name in ON_DEVICES:
            raise CannotFollowError("code that runs on several devices (shard_map, pmap) is not followed", place)
        numbers = self._draw(ins[0], place, other.outvars[0].aval) if name == "random_bits" else []
        if name == "random_split" and ins[0].random:
            self.keys.split(ins[0], place)
        if name in CALLBACKS:
            self.opaque.setdefault(f"the callback at {spelled(place)}")
        if name in COMPARISONS and not self._rejects:
            for draw, rate in rate_of(ins, place).items():
                self._rates.setdefault(draw, rate)
            if self.forced is not None:
                self.forced.compare(ins, place)
        if any(value.tag is not None for value in ins):
            around = set(calls_of(place))
            self.meetings.readers.update(around)
            self._holders.update(around if any(value.values for value in ins) else ())
        outs = self.apart(one, other, ins, ins_b, place)
        for out in outs:
            out.draws_from(numbers)
        return outs

    def apart(self, one: Any, other: Any, ins: Sequence[Value], ins_b: Sequence[Value], place: Place) -> list[Value]:
        """One equation run on each side by itself."""
        outs = evaluate(one, [value.a for value in ins])
        differ = any(value.differs for value in ins) or ins is not ins_b or shapes(one) != shapes(other)
        outs_b = evaluate(other, [value.b for value in ins_b]) if differ or one.params != other.params else outs
        if one.primitive.name in ("random_bits", "random_split"):
            outs_b = [pairing.coupled(a, b, self.group) for a, b in zip(outs, outs_b, strict=True)]
        if pairing.fresh_of_count(one.primitive.name, ins, ins_b):
            outs_b = outs
            ins = ins_b = list(map(pairing.as_one, ins))
        results = []
        inputs = [*ins, *(value for value in ins_b if not any(value is own for own in ins))]
        for which, (a, b) in enumerate(zip(outs, outs_b, strict=True)):
            results.append(self._settle(one, place, a, b, inputs, which))
        return results

    def _settle(self, equation: Any, place: Place, a: Any, b: Any, ins: Sequence[Value], which: int) -> Value:
        name, params = equation.primitive.name, equation.params
        public = all(value.public and not value.differs for value in ins)
        if a is b and name not in CALLBACKS and public and not is_key(a):
            # a number that is only moved was made where it was computed
            made = ins[0].at if name in SAME_NUMBERS and ins else None
            even = even_along(name, params, a, ins, place)
            return Value(a=a, b=a, at=made or place, public=True, even=even)
        if self.first_round and any(value.calm for value in ins) and any(value.values for value in ins):
            raise FirstRoundEnded
        derived = self._derived or is_derived(equation)
        out = labelled(
            name, params, place, a, b, ins, which=which, counts=self.counts, group=self.group, derived=derived
        )
        if out.a is not a and (name in FILLING or (name == "slice" and out.values)):
            self.lined_up = self.lined_up or place
        if name == "div" and ins[1].differs and ins[1].random and ins[1].tag is None and not ins[1].values:
            self.divided = self.divided or place
        if any(value.tag is not None for value in ins):
            self._met_records.update(value.fixed.nearest for value in ins if value.fixed is not None)
        if out.fixed_noise is not None and out.fixed_noise[1].nearest in self._met_records:
            out.fixed_noise = None
        if out.summed and not out.differs and a is not b and any(value.differs for value in ins):
            self.rounded = self.rounded or (None if np.array_equal(host(a), host(b)) else place)
        out.copied, out.lost = copied_at(out, ins, place), lost_at(out, ins, place)
        if name in DERIVE_KEYS and out.random:
            self.keys.derived(out, place, ins)
        if name in CALLBACKS:
            out.opaque = place
        if out.noise and out.draw is None:
            out.draw = place
        if self.company is not None:
            own = (self.path, id(equation), which)
            self._passed[own] += 1
            self.company.see((*own, self._passed[own]), out, ins, place)
        self.choices.see(out, place, released=bool(self.meetings.releases))
        if name == "select_n" and not out.differs and may_leave_noise_out(ins):
            self.left_to_a_coin = self.left_to_a_coin or place
        out.noise = out.noise and not self._rejects
        met = self.meetings.meet(name, params, equation.primitive, out, ins, which, self.path)
        if met.muted is not None and not met.noise and any(value.noise for value in ins):
            self.keys.thrown_away(met.drawn)
            met.drawn = frozenset()
        return met

    def _call(self, one: Any, other: Any, ins: list[Value], ins_b: list[Value], within: Within | None) -> list[Value]:
        kept = CALLS[one.primitive.name]
        jaxpr_a, jaxpr_b = one.params[kept], other.params[kept]
        library = is_library(file_of(jaxpr_a) or "<unknown>")
        place = place_of(one, within)
        if library and one.params.get("name") in COUNTERS and not any(value.values for value in ins):
            return self._counted(one, other, ins, ins_b, place)
        own_keys = not any(value.data and not pairing.is_of_count(value) for value in ins)
        keys_alone = own_keys and any(value.random and is_key(value.a) for value in ins)
        # a complex number is made of two: they are followed one by one
        whole = keys_alone and not any(jnp.issubdtype(out.aval.dtype, jnp.complexfloating) for out in one.outvars)
        if library and whole and not any(value.released for value in ins) and hasattr(jaxpr_a, "consts"):
            return self._sampler(one, other, ins, ins_b, place)
        with replaced(self, "_derived", self._derived or is_derived(one)):
            outs = self.run(jaxpr_a, jaxpr_b, ins, ins_b, inside(jaxpr_a, one, within))
        name = one.params.get("name", "")
        if self.forced is None or name.lstrip("_") not in LAWS or self.meetings.releases:
            return outs
        # a number from a key for each record
        sides = [self.forced.put(name, ins, out.a, out.b, place) for out in outs]
        return [dataclasses.replace(out, a=a, b=b) for out, (a, b) in zip(outs, sides, strict=True)]

    def _sampler(self, one: Any, other: Any, ins: list[Value], ins_b: list[Value], place: Place) -> list[Value]:
        """A library's function of keys alone: what it draws is noise, or a choice."""
        name, jaxpr = one.params.get("name", ""), one.params[CALLS[one.primitive.name]]
        keys = [value for value in ins if value.random and is_key(value.a) and draws(jaxpr)]
        outs = evaluate(one, [value.a for value in ins])
        drawn = None if is_key(outs[0]) else outs[0]
        numbers = [number for value in keys for number in self._draw(value, place, other.outvars[0].aval, drawn)]
        self.laplace.update(numbers if name == "_laplace" else ())
        outs_b = evaluate(other, [value.b for value in ins_b]) if shapes(one) != shapes(other) else outs
        ins = list(map(pairing.as_one, ins))
        results = []
        if name in INDEPENDENT:
            outs_b = [pairing.coupled(a, b, self.group) for a, b in zip(outs, outs_b, strict=True)]
        for which, (a, b) in enumerate(zip(outs, outs_b, strict=True)):
            if self.forced is not None and not self.meetings.releases:
                a, b = self.forced.put(name, ins, a, b, place)
            out = labelled("sampler", {}, place, a, b, ins, which=which, counts=self.counts, group=self.group)
            out.draws_from(numbers)
            self.choices.see(out, place, released=bool(self.meetings.releases))
            if out.random and is_key(a):
                self.keys.derived(out, place, ins)
            if out.random and jnp.issubdtype(a.dtype, jnp.floating):
                out.noise, out.draw = True, place
                out.variance, out.guessed = variance_of_call(name, jaxpr, ins, which)
                if name in INDEPENDENT and out.variance is not None:
                    out.terms = self.keys.terms(keys, name, np.shape(a), out.variance)
                    out.repeated = None if out.terms is None or out.terms.plain else place
                self.draws.add(place)
            elif out.random and jnp.issubdtype(a.dtype, jnp.integer):
                # random integers may be made into noise; a choice of records is told by what it is used for
                out.noise, out.draw = True, place
            results.append(out)
        return results

    def _counted(self, one: Any, other: Any, ins: list[Value], ins_b: list[Value], place: Place) -> list[Value]:
        """A generator that makes independent bits of a key and of counters."""
        outs, outs_b = evaluate(one, [value.a for value in ins]), evaluate(other, [value.b for value in ins_b])
        pairs = [(a, pairing.coupled(a, b, self.group)) for a, b in zip(outs, outs_b, strict=True)]
        ins = [dataclasses.replace(value, b=value.a) if value.differs else value for value in ins]
        return [self._settle(one, place, a, b, ins, which) for which, (a, b) in enumerate(pairs)]

    def _cond(self, one: Any, other: Any, ins: list[Value], ins_b: list[Value], within: Within | None) -> list[Value]:
        place = place_of(one, within)
        index = combined(ins[0], ins_b[0], place)
        if index.differs:
            if any(value.random for value in ins):
                raise CannotFollowError(
                    "a branch that draws random numbers or uses released values depends on data", place
                )
            return self.apart(one, other, ins, ins_b, place)
        branches_a, branches_b = one.params["branches"], other.params["branches"]
        if len(branches_a) != len(branches_b):
            raise CannotFollowError("the number of branches depends on the number of records", place)
        taken = int(np.clip(host(index.a), 0, len(branches_a) - 1))
        chosen = branches_a[taken]
        by_coin = index.random and not index.released
        if by_coin:
            self.untaken.setdefault(place, set(range(len(branches_a)))).discard(taken)
        with replaced(self.meetings, "inside", place):
            outs = self.run(chosen, branches_b[taken], ins[1:], ins_b[1:], inside(chosen, one, within))
        # where other branches draw noise this one leaves it out
        left_out = place if not draws(chosen) and any(map(draws, branches_a)) else None
        for number, out in enumerate(outs):
            if out.values and out.tag is None:
                # what a coin chooses may be another answer than the record's, as in randomised response
                answer = by_coin and not jnp.issubdtype(out.a.dtype, jnp.inexact)
                out = dataclasses.replace(out, muted=out.muted or left_out, blurred=out.blurred or answer)
            outs[number] = out if index.hidden is None else chosen_unseen(out, index.hidden, place)
        return outs

    def judge_keys(self, program: Any) -> None:
        """Say which keys served twice, and which draws the number of records decides.

        What a draw is for shows when its numbers are used, and who holds the records at the end. The program runs the
        user's Python once more, also with an eye on keys.
        """
        self.keys.judge(self.meetings.releases, lambda: program.hands, self.meetings.together)
        # where nobody reads a record, no draw chooses any
        for draw, rate in self._rates.items() if self._holders else ():
            self.find(rate.told(draw, self._holders, self.counts, program.trace_again))

    def _draw(self, key: Value, place: Place, drawn: Any, numbers: Any = None) -> list[int]:
        """Remember who drew from a key: the numbers of the draw, if its key is not the same in every run."""
        self.draws.add(place)
        if key.differs and key.tag is None and key.uncoupled is not None and not key.values:
            raise CannotFollowError("N and N + 1 records pick other keys", place)
        if key.values and key.random and key.origin is None and (key.tag is not None or key.alone is not None):
            self.keyed_by_records = True
            why = f"the numbers drawn at {spelled(place)} have a key for each record, which depends on what it holds"
            raise CannotFollowError(f"{why}: they are independent only if no two records hold the same there", place)
        if key.values or (key.differs and key.tag is None and not key.random):
            of_count = None if key.values else COUNT
            origin = spelled(key.origin) if isinstance(key.origin, Place) else key.origin or of_count
            since = None if key.since is None or spelled(key.since) == origin else f"from {spelled(key.since)} on"
            told = f" ({', '.join(parts)})" if (parts := [*filter(None, (origin, since))]) else ""
            self.find(led(found(Kind.RANDOMNESS_FROM_DATA, draw=place, origin=told), key.since or place))
            raise CannotFollowError("random numbers that depend on the data are not the same on both sides", place)
        if not key.random:
            if drawn.size == self.counts[1]:
                self.constant_choice = self.constant_choice or key.fixed or place
            return []
        each = drawn.size == self.counts[1] * max(1, key.a.size)
        chooses = not each if jnp.issubdtype(drawn.dtype, jnp.signedinteger) else each
        return self.keys.drawn(
            key, Use(place, self.path, tuple(drawn.shape), chooses, key.copied, key.at, numbers=numbers)
        )
