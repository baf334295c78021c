"""Events of dp-accounting as text: what `str` prints of one makes it again, and nothing else is executed."""

from __future__ import annotations

import ast
from typing import Any


def event_from_text(text: str) -> Any:
    """The DpEvent that prints itself so. Names must be those of dp-accounting's events, arguments numbers or events.

    Raises:
      ValueError: the text is no such event.
    """
    try:
        return _event(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, TypeError, ValueError) as error:
        raise ValueError(f"no event of dp-accounting can be read from {text[:200]!r} ({error}).") from None


def _event(node: ast.expr) -> Any:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        import dp_accounting

        kind = getattr(dp_accounting, node.func.id, None)
        if not (isinstance(kind, type) and issubclass(kind, dp_accounting.DpEvent)):
            raise ValueError(f"{node.func.id} is no event")
        return kind(*map(_event, node.args), **{str(word.arg): _event(word.value) for word in node.keywords})
    if isinstance(node, ast.List | ast.Tuple):
        return [_event(each) for each in node.elts]
    return ast.literal_eval(node)
