"""Build mechanisms, neighbours, distinguishers, claims and policies from the tables of a suite."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib.util
import inspect
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import distinguishers
import mechanisms
from audit.claim_fits_pair import require_matching
from audit.policies.catalogue import POLICIES
from audit.policies.policy import Policy
from audit.suites.claim_names import CLAIMS
from audit.suites.loading import load
from audit.suites.parts import (
    Catalogue,
    called,
    code_of,
    has_own_functions,
    known_words,
    refuse_wrong_words,
    require_simulator,
    signature_of,
    stated,
    takeable,
    taken,
)
from audit.suites.read import is_part
from audit.suites.suite import AuditSpec, Suite, SuiteError, UnbuiltError
from audit.trials.user_code_errors import passes, raised_at, sentence
from distinguishers.catalogue import DISTINGUISHERS
from distinguishers.contract import Distinguisher, Learner
from dpsgd_audit.face import ByName
from dpsgd_audit.spelling import did_you_mean
from guarantees.claim import Claim
from mechanisms.adapters.environments import Environment, NeedsEnvironment
from mechanisms.catalogue import MECHANISMS, NEIGHBOURS
from mechanisms.pairs.neighbours import Neighbours

if TYPE_CHECKING:
    from audit.trials.both_sides import Auditable

LIBRARY_CLAIMS: ByName[Callable[..., Claim]] = ByName("mechanisms", "opacus_claim", "optax_claim", "jax_privacy_claim")
"""Claims read from a library's own accountant, for which the mechanism and the neighbours are passed."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Built:
    """An audit ready to run."""

    spec: AuditSpec
    mechanism: Auditable
    neighbours: Neighbours
    distinguisher: Distinguisher | Learner | None
    claim: Claim
    policy: Policy | None
    taken: frozenset[str] = frozenset()
    """Parameters of the audit that its parts take."""


MADE = {"neighbours": Neighbours, "claim": Claim, "policy": Policy}
"""Type that a user's function for a part must return; mechanisms and distinguishers may be functions themselves."""


def catalogue() -> Catalogue:
    """Every constructor that a suite can name, by the part that it makes; each is loaded when it is looked up."""
    return {
        "mechanism": MECHANISMS,
        "neighbours": NEIGHBOURS,
        "distinguisher": DISTINGUISHERS,
        "claim": ByName("guarantees", *CLAIMS) | LIBRARY_CLAIMS,
        "policy": POLICIES,
    }


def only_installed(needed: Environment) -> None:
    """Refuse an environment that is not installed; installs nothing."""
    needed.required()


def build(spec: AuditSpec, *, run_code: bool = True, install: Callable[[Environment], None] = only_installed) -> Built:
    """Build every part of one audit; an error about a wrong word names its place.

    Without ``run_code`` an audit that names code is refused, and nothing of it is executed. ``install`` is called with
    the environment that the mechanism needs, before a claim may use it.
    """
    known = catalogue()
    if not run_code and (named := code_of(spec, known)):
        raise SuiteError(f"{spec.where}: building audit {spec.name!r} would run {', '.join(named)}.")
    try:
        return _Builder(spec, known, install).built()
    except SuiteError:
        raise
    except BaseException as error:
        if passes(error):
            raise
        raise UnbuiltError(f"{spec.where}: audit {spec.name!r} cannot be built: {sentence(error)}") from error


def build_suite(
    suite: Suite,
    audits: Sequence[AuditSpec] | None = None,
    *,
    run_code: bool = True,
    unbuilt: Callable[[AuditSpec, UnbuiltError], None] | None = None,
    install: Callable[[Environment], None] = only_installed,
) -> list[Built]:
    """Build all audits of a suite, or the given ones; parameters that no part takes are refused.

    ``unbuilt`` is called with those that cannot be built, which otherwise raise. A wrong word raises in any case.
    """
    known = catalogue()
    wanted = suite.audits if audits is None else audits
    left_out = [spec for spec in suite.audits if spec not in wanted]
    for spec in left_out:
        refuse_wrong_words(spec, known)
        if not has_own_functions(spec):
            _refuse_unused(spec, known, taken(spec, known))
    built = []
    for spec in wanted:
        try:
            built.append(build(spec, run_code=run_code, install=install))
        except UnbuiltError as error:
            if unbuilt is None:
                raise
            unbuilt(spec, error)
            left_out.append(spec)
    if not any(map(has_own_functions, left_out)):
        found = [*(audit.taken for audit in built), *(taken(spec, known) for spec in left_out)]
        _refuse_unused_defaults(suite, known, set().union(*found))
    return built


class _Builder:
    """Builds the parts of one audit, and tracks which of its parameters they take."""

    def __init__(self, spec: AuditSpec, known: Catalogue, install: Callable[[Environment], None]):
        self._spec, self._known, self._install = spec, known, install
        self._taken = taken(spec, known)

    def built(self) -> Built:
        """The built audit."""
        spec = self._spec
        step: Auditable = self._mechanism(spec.mechanism)
        _refuse_missing(step, spec)
        needed = step.installs if isinstance(step, NeedsEnvironment) else None
        if needed is not None:
            with _placed(f"audit {spec.name!r}", spec):
                self._install(needed)
        pair = self._part("neighbours", spec.neighbours)
        given = {"mechanism": step, "neighbours": pair}
        found = Built(
            spec=spec,
            mechanism=step,
            neighbours=pair,
            distinguisher=None if spec.distinguisher is None else self._distinguisher(given),
            claim=self._part("claim", spec.claim, given),
            policy=None if spec.policy is None else self._part("policy", spec.policy),
            taken=frozenset(self._taken),
        )
        _refuse_unused(spec, self._known, self._taken)
        with _placed(f"audit {spec.name!r}", spec):
            require_matching(step, pair, found.claim)
        return found

    def _distinguisher(self, audited: Mapping[str, Any]) -> Any:
        """A distinguisher; its `model` and `neighbours` are assumptions, which may differ from what is audited."""
        table, given = dict(self._spec.distinguisher or {}), dict(audited)
        if "model" in table:
            given["mechanism"] = self._mechanism(self._table(table.pop("model"), "model"))
        if "neighbours" in table:
            given["neighbours"] = self._part("neighbours", self._table(table.pop("neighbours"), "neighbours"))
        return distinguishers.distinguisher(self._part("distinguisher", table, given))

    def _table(self, table: Any, key: str) -> Mapping[str, Any]:
        """A table, where a name alone stands for a table of that kind."""
        if isinstance(table, str):
            return {"kind": table}
        if is_part(table):
            return table
        raise SuiteError(
            f"{self._spec.at(key)}: {key} of a distinguisher must be a name or a table with "
            f'`kind = "..."`, got {table!r}.'
        )

    def _mechanism(self, table: Mapping[str, Any]) -> Any:
        """A mechanism by name, or a user's own by entry point; `simulator = "collapsed"` takes its fast form."""
        table = dict(table)
        simulator = table.pop("simulator", "full")
        require_simulator(simulator, self._spec)
        step = mechanisms.mechanism(self._part("mechanism", table))
        if simulator == "full":
            return step
        collapsed = step.collapsed()
        if collapsed is None:
            raise SuiteError(f"{self._spec.at('simulator')}: {step.name} has no collapsed simulator; drop `simulator`.")
        return collapsed

    def _part(self, part: str, table: Mapping[str, Any], given: Mapping[str, Any] | None = None) -> Any:
        """A part of a built-in kind, or of the user's own code."""
        if "kind" not in table:
            return self._from_code(part, table)
        spec, kind, given = self._spec, table["kind"], given or {}
        words = known_words(part, table, spec, self._known, given)
        arguments = {**words.shared, **{key: value for key, value in given.items() if key in words.names}, **words.own}
        arguments = {key: tuple(value) if isinstance(value, list) else value for key, value in arguments.items()}
        for key, path in words.imports.items():
            arguments[key] = load(path, key, spec, spec.at(key))
            self._refuse_defaults(arguments[key], f"{key} = {path!r}")
        with _placed(called(part, spec, kind), spec):
            return self._known[part][kind](**arguments)

    def _from_code(self, part: str, table: Mapping[str, Any]) -> Any:
        """A part from `function = "package.module:name"` without a kind: the object, or a function that makes it.

        A function that makes a part gets the other words of its table and every parameter of the audit that it names.
        """
        spec, made = self._spec, MADE.get(part)
        words = stated(part, table, spec.parameters, self._known)
        ((word, path),) = words.imports.items()
        what = f"{word} = {path!r} of audit {spec.name!r}"
        found = load(path, word, spec, where := spec.at(part))
        named = {
            key: value for key, value in spec.parameters.items() if key in signature_of(found) and key not in words.own
        }
        ready = made is not None and isinstance(found, made)
        bound = part == "mechanism" and bool(named) and _waits_for_trials(found, named)
        if not ready and (bound or words.own or made is not None or _makes(found, named)):
            if not callable(found):
                raise UnbuiltError(
                    f"{where}: {what} is {found!r}, which is neither a {part} nor a function that makes one."
                )
            arguments = {**named, **words.own}
            given = f" with {arguments}" if arguments else ""
            with _placed(f"{what} failed{given}", spec):
                bound = part == "mechanism" and _waits_for_trials(found, arguments)
                found = functools.partial(found, **arguments) if bound else found(**arguments)
            self._taken |= set(named)
            self._refuse_defaults(found, f"what {word} = {path!r} makes", but=arguments)
        else:
            self._refuse_defaults(found, f"{word} = {path!r}")
        if made is not None and not isinstance(found, made):
            raise UnbuiltError(f"{where}: {what} must return a {made.__name__}, got {found!r}.")
        return found

    def _refuse_defaults(self, found: Any, what: str, *, but: Mapping[str, Any] | None = None) -> None:
        """Refuse a function that would run with its default although the suite states another value for it."""
        if not isinstance(found, types.FunctionType | functools.partial):
            return
        for key, parameter in signature_of(found).items():
            default = parameter.default
            if key not in self._spec.parameters or key in (but or {}) or default is inspect.Parameter.empty:
                continue
            raise SuiteError(
                f"{self._spec.at(key)}: the parameter {key!r} of audit {self._spec.name!r} does not reach {what}, "
                f"which would run with its default {key}={default!r}; name a function that takes {key!r} and returns "
                f"the part, or rename one of the two."
            )


def _makes(found: Any, named: Mapping[str, Any]) -> bool:
    """Whether an object makes a part rather than being one: a class, or a function of parameters of the audit.

    A function that needs nothing makes one too, since a step or a score needs arguments.
    """
    names = signature_of(found)
    needs = [
        parameter
        for parameter in names.values()
        if parameter.default is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD
    ]
    if isinstance(found, types.FunctionType) and not needs:
        return True
    needed = {
        key
        for key, parameter in names.items()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    }
    return isinstance(found, type) or (bool(named) and needed <= set(named))


def _waits_for_trials(found: Any, given: Mapping[str, Any]) -> bool:
    """Whether a function is a mechanism with settings: beside these it needs a key and a dataset in first place."""
    first = [*signature_of(found).values()][:2] if isinstance(found, types.FunctionType) else []
    by_place = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = [
        parameter.name for parameter in first if parameter.default is parameter.empty and parameter.kind in by_place
    ]
    return len(needed) == 2 and given.keys().isdisjoint(needed)


@contextlib.contextmanager
def _placed(what: str, spec: AuditSpec) -> Iterator[None]:
    """Add to an error of a constructor or user function the line of the word that its message begins with."""
    try:
        yield
    except BaseException as error:
        if passes(error):
            raise
        message = sentence(error)
        raise UnbuiltError(f"{spec.at(message.split(maxsplit=1)[0])}: {what}{raised_at(error)}: {message}") from error


def _refuse_missing(step: Any, spec: AuditSpec) -> None:
    """Refuse a mechanism whose library is missing before another audit has cost time."""
    missing = [name for name in step.libraries if importlib.util.find_spec(name) is None]
    if missing:
        raise UnbuiltError(
            f"{spec.at('mechanism')}: {step.name} of audit {spec.name!r} needs {' and '.join(missing)}, which is not "
            "installed; dpsgd-audit has the extras opacus and jax-privacy: pip install 'dpsgd-audit[...]'."
        )


def _refuse_unused(spec: AuditSpec, known: Catalogue, found: set[str]) -> None:
    """Refuse a parameter of an audit that no part takes: it is misspelt, or every part has its own word for it."""
    for key in spec.own_parameters:
        if key not in found:
            raise SuiteError(
                f"{spec.at(key)}: no part of audit {spec.name!r} takes the parameter {key!r}"
                f"{_instead(key, takeable(spec, known) | found)}"
            )


def _refuse_unused_defaults(suite: Suite, known: Catalogue, found: set[str]) -> None:
    """Refuse a parameter of [defaults] that no part of any audit takes."""
    for key, where in suite.defaults.items():
        if key not in found:
            names = set().union(*(takeable(spec, known) for spec in suite.audits)) | found
            raise SuiteError(
                f"{where}: no part of any audit takes the parameter {key!r} of [defaults]{_instead(key, names)}"
            )


def _instead(key: str, names: set[str]) -> str:
    """Say why a parameter is not taken, or which one may be meant."""
    if key in names:
        return ": the parts that know it have their own word for it, which wins. Drop one of the two."
    return f"{did_you_mean(key, names)}. Taken: {', '.join(sorted(names)) or 'none'}."
