"""How to run one audit again: the command that does, or the Python program that its record describes."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Mapping
from typing import Any

from audit.record.record import AuditRecord, Part

NOT_REPEATABLE = (
    "trials that were drawn twice differed: the code does not draw from its seed alone, so the same seed gives other "
    "counts. The bounds hold if the trials are independent of each other."
)
OWN = "{name}  # your own: import it"
FUNCTIONS = ("train", "function", "given", "init", "update", "gradients", "loss", "weights")
"""Parameters of mechanisms that are functions of the reader's, recorded as 'module:name'."""
ADAPTERS = {"train": "torch_training", "function": "callable_step", "given": "mechanism", "update": "jax_training"}
"""What makes a mechanism of a function of the reader's, by the function's parameter; the record has its name."""
VERSIONS = ("torch", "opacus")
"""Parameters that say what was installed: no constructor takes them."""
TAKEN = ("function", "clip", "noise_multiplier", "gradients", "releases")
"""What callable_step takes; all else that it records are its settings."""
OWN_DATA = ("add_record", "replace_record", "zero_out", "pair")
"""Pairs of datasets of the reader's, of which a record has a digest."""


def command_of(record: AuditRecord, command: str = "") -> str:
    """What repeats this one audit of a suite; ``command`` made all of them. Nothing outside a suite."""
    suite = record.suite
    if suite is None:
        return command
    words = _words(command)
    if words[:2] != ["dpsgd-audit", "run"]:
        if command:
            return command
        words = ["dpsgd-audit", "run", "SUITE.toml", "--seed", str(suite.seed), "--trials", str(record.trials_planned)]
        words += ["--look", str(record.look)] if record.look else []
    if suite.audits == 1:
        return shlex.join(words)
    kept = [word for at, word in enumerate(words) if "--audit" not in (word, words[at - 1])]
    return shlex.join([*kept, "--audit", record.name])


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:
        return []


def program(record: AuditRecord) -> str:
    """Lines of Python that repeat the trials of a record; what we cannot import is named as the reader's own."""
    if record.conditions:
        return _judging(record)
    step, pair, score = _step(record), _pair(record.neighbours), _score(record)
    implementation, _, words = record.key.partition(":")
    return "\n".join(
        [
            "import jax, numpy",
            "import audit, distinguishers, guarantees, mechanisms",
            *_imports(step, pair, score),
            *_own_modules(record.mechanism.parameters),
            "",
            f"step = {step}",
            f"pair = {pair}",
            f"score = {score}",
            "record = audit.run_audit(",
            "    step, pair, score,",
            f"    claim=guarantees.{record.claim.describe()},",
            f"    trials={record.trials_planned}, risk={record.risk!r}, delta={record.report_delta!r},",
            *_policy(record.policy),
            f'    key=jax.random.wrap_key_data(numpy.uint32([{words}]), impl="{implementation}"),',
            ")",
            "",
        ]
    )


def _judging(record: AuditRecord) -> str:
    """Lines that judge scores again; what drew them is the reader's."""
    given, once = record.scores, record.one_run
    if given is not None:
        what, called = f"without and with_record: the {given.what} that were given", "from_scores"
        fixed = tuple(sorted({point.threshold for point in record.points}))
        more = f"thresholds={fixed!r}" if given.seed is None else f"seed={given.seed}"
        more += "" if given.target is None else f", target={given.target!r}"
    else:
        assert once is not None
        what = "scores and included: of your canaries, as the training gave them; guesses= if you chose their numbers"
        called, more = "one_run", f"seed={once.seed}, relation={record.neighbours.kind!r}"
    return "\n".join(
        [
            "import audit, guarantees",
            "",
            f"# {what}",
            f"answer = audit.{called}(",
            f"    {what.partition(':')[0].replace(' and ', ', ')},",
            f"    claim=guarantees.{record.claim.describe()},",
            f"    risk={record.risk!r}, delta={record.report_delta!r}, {more},",
            ")",
            "",
        ]
    )


def _step(record: AuditRecord) -> str:
    """The mechanism; one that an adapter made of a function of the reader's by that adapter's call."""
    part = record.mechanism
    own = next((word for word in ADAPTERS if word in part.parameters), None)
    if own is None or part.name in _homes():
        return _call(part)
    given = {
        key: _Code(_function(key, value)) if key in FUNCTIONS else value
        for key, value in part.parameters.items()
        if key not in VERSIONS
    }
    adapter = ADAPTERS[own]
    if record.releases not in ("", "update", given.get("releases")):
        given["releases"] = record.releases
    if adapter == "callable_step":
        settings = {key: given.pop(key) for key in list(given) if key not in TAKEN}
        given |= {"settings": settings} if settings else {}
    if adapter == "mechanism":
        # remarks are an attribute of the function
        given = {key: value for key, value in given.items() if key in ("given", *TAKEN)}
    first = given.pop(own) if own != "update" else None
    inside = [f"{first}"] if first is not None else []
    return f"mechanisms.{adapter}({', '.join([*inside, *(f'{key}={value!r}' for key, value in given.items())])})"


def _pair(part: Part) -> str:
    """The pair; of the reader's own datasets only a digest is known."""
    if part.name not in OWN_DATA:
        return _call(part)
    known = ", ".join(f"{key} {value}" for key, value in part.parameters.items())
    return f"...  # your own data: mechanisms.{part.name}(...), {known}"


def _call(part: Part) -> str:
    from mechanisms.catalogue import COLLAPSED

    if part.name in COLLAPSED:
        return f"mechanisms.{dataclasses.replace(part, name=COLLAPSED[part.name]).describe()}.collapsed()"
    home = _homes().get(part.name)
    if home is None:
        given = ", ".join(f"{key}={value}" for key, value in part.parameters.items())
        return OWN.format(name=part.name) + (f" as it was audited, with {given}" if given else "")
    code = {key: _Code(_function(key, part.parameters[key])) for key in FUNCTIONS if key in part.parameters}
    call = dataclasses.replace(part, parameters={**part.parameters, **code}).describe()
    return f"mechanisms.{call}" if home == "mechanisms" else call


class _Code(str):
    """Python that stands in a call as it is."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _own_modules(parameters: Mapping[str, Any]) -> list[str]:
    """Lines that import the reader's functions."""
    found = {key: parameters[key] for key in FUNCTIONS if key in parameters}
    lines = [
        f"# {_function(key, place)}: your own {place}"
        if _nameless(place)
        else f"import {place.partition(':')[0]}  # your own"
        for key, place in found.items()
    ]
    return list(dict.fromkeys(lines))


def _function(key: str, place: str) -> str:
    if not _nameless(place):
        return place.replace(":", ".")
    name = place.rpartition(":")[2].rpartition(".")[2]
    return name if name.isidentifier() and place.startswith("__main__:") else key


def _nameless(place: str) -> bool:
    """A lambda, a function inside another one or of a script, or part of one: nobody can import it."""
    return "<" in place or place.startswith(("__main__:", "functools:"))


def _policy(recorded: Mapping[str, Any]) -> list[str]:
    """The policy as it was, where users can name it."""
    from audit.policies.catalogue import POLICIES

    kind = POLICIES.get(recorded.get("kind", ""))
    if kind is None:
        return []
    words = {key: tuple(value) if isinstance(value, list) else value for key, value in recorded.items()}
    inside = ", ".join(f"{key}={value!r}" for key, value in words.items() if key != "kind")
    return [f"    policy=audit.{kind.__name__}({inside}),"]


def _homes() -> dict[str, str]:
    """From where Python imports the mechanisms and pairs that suites name."""
    from mechanisms.catalogue import MECHANISMS, NEIGHBOURS

    return {name: known.home(name) for known in (MECHANISMS, NEIGHBOURS) for name in known}


def _imports(*calls: str) -> list[str]:
    """Lines for what calls use and ``mechanisms`` itself does not show."""
    inner = {name: home for name, home in _homes().items() if home != "mechanisms"}
    return [f"from {inner[name]} import {name}" for name in inner if any(f"{name}(" in call for call in calls)]


def _score(record: AuditRecord) -> str:
    from distinguishers.catalogue import DISTINGUISHERS

    name, reads = record.distinguisher.name, record.distinguisher.parameters
    if name == "battery":
        along = "distinguishers.default_battery(pair, mechanism=step, replay=True)"
        return along if reads.get("replay") else "None  # the default battery"
    if name == "learned":
        return "distinguishers.fit()"
    if name not in DISTINGUISHERS:
        return OWN.format(name=name)
    audited = {"mechanism": ("step", record.mechanism), "neighbours": ("pair", record.neighbours)}
    words = [_supposed(reads[key], *audited[key]) for key in audited if key in reads]
    others = [f"{key}={value!r}" for key, value in reads.items() if key not in audited]
    return f"distinguishers.{name}({', '.join([*words, *others])})"


def _supposed(table: Any, word: str, audited: Part) -> str:
    """The audited part by its word; another one, that the distinguisher supposes instead, as a call."""
    if not isinstance(table, Mapping) or "kind" not in table:
        return word
    part = Part(name=table["kind"], parameters={key: value for key, value in table.items() if key != "kind"})
    if (part.name, part.parameters) == (audited.name, dict(audited.parameters)):
        return word
    return _call(part)
