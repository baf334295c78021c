"""Events of dp-accounting as text: parses what ``str`` prints of an event without executing anything else."""

from __future__ import annotations

import ast
from typing import Any

INSIDE = {
    "SelfComposedDpEvent": ("event", 0),
    "PoissonSampledDpEvent": ("event", 1),
    "SampledWithReplacementDpEvent": ("event", 2),
    "SampledWithoutReplacementDpEvent": ("event", 2),
}
"""Events that hold one other event: the name of its argument, and its place."""


def event_from_text(text: str) -> Any:
    """The DpEvent with this text. Names must be those of dp-accounting's events, arguments numbers or events.

    Raises:
      ValueError: the text is no such event.
    """
    try:
        return _event(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, TypeError, ValueError) as error:
        raise ValueError(f"cannot read a dp-accounting event from {text[:200]!r} ({error}).") from None


def noise_multiplier_of(text: str) -> float | None:
    """Noise multiplier of each step's Gaussian release; None if a step makes several releases, or another kind.

    It is read from the text alone: a record may be looked at where dp-accounting is not installed.
    """
    try:
        node = ast.parse(text.strip(), mode="eval").body
        while (kind := _kind(node)) in INSIDE:
            node = _argument(node, *INSIDE[kind])
            if kind != "SelfComposedDpEvent" and _kind(node) == "SelfComposedDpEvent":
                return None  # several releases from one batch
        return float(ast.literal_eval(_argument(node, "noise_multiplier", 0))) if kind == "GaussianDpEvent" else None
    except (SyntaxError, ValueError, IndexError):
        return None


def _kind(node: Any) -> str:
    return node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""


def _argument(node: Any, name: str, place: int) -> Any:
    return next((word.value for word in node.keywords if word.arg == name), None) or node.args[place]


def _event(node: ast.expr) -> Any:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        import dp_accounting

        kind = getattr(dp_accounting, node.func.id, None)
        if not (isinstance(kind, type) and issubclass(kind, dp_accounting.DpEvent)):
            raise ValueError(f"{node.func.id} is not an event")
        return kind(*map(_event, node.args), **{str(word.arg): _event(word.value) for word in node.keywords})
    if isinstance(node, ast.List | ast.Tuple):
        return [_event(each) for each in node.elts]
    return ast.literal_eval(node)
