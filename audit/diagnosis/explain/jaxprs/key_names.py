"""What a line of the user's says of the key that it reads: what it is for, and whether the line renews it."""

from __future__ import annotations

import ast
import re

from audit.diagnosis.explain.places import Frame, Place, returned_from, statement_at

NOISE = re.compile("noise|gauss|perturb|jitter", re.IGNORECASE)
BATCHES = re.compile("batch|sampl|coin|poisson|mask|select|pick|loader|choose|chosen|member", re.IGNORECASE)
ASSIGNING = (ast.Assign, ast.AnnAssign, ast.AugAssign)


def is_for_other(frame: Frame | None, *, chooses: bool) -> bool:
    """Whether a line takes a key that is called one for noise to choose records, or the other way round."""
    node = None if frame is None else statement_at(frame)
    names = [] if node is None else [name for part in ast.walk(node) for name in _arguments(part)]
    own, other = (BATCHES, NOISE) if chooses else (NOISE, BATCHES)
    return any(other.search(name) for name in names) and not any(own.search(name) for name in names)


def _arguments(node: ast.AST) -> list[str]:
    """Names and attributes that a call is given as they are."""
    given = [*node.args, *(word.value for word in node.keywords)] if isinstance(node, ast.Call) else []
    return [getattr(one, "attr", getattr(one, "id", "")) for one in given if isinstance(one, ast.Name | ast.Attribute)]


def renews(frame: Frame) -> bool:
    """Whether a line gives a new value to something that it reads, as ``key, own = split(key)`` does."""
    node = statement_at(frame)
    if not isinstance(node, ASSIGNING) or node.value is None:
        return False
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    given = {ast.unparse(one) for target in targets for one in _parts(target)}
    return bool(given & {ast.unparse(one) for one in ast.walk(node.value) if isinstance(one, ast.Name | ast.Attribute)})


def _parts(target: ast.expr) -> list[ast.expr]:
    inside = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
    return [one.value if isinstance(one, ast.Starred) else one for one in inside]


def stuck_counter(at: Place) -> tuple[str, Place] | None:
    """What a line folds into a key, and the line of its function that returns it; None where there is no such line.

    Of a key that is the same each time: then so is what is folded in.
    """
    node = None if at.nearest is None else statement_at(at.nearest)
    calls = [] if node is None else [one for one in ast.walk(node) if isinstance(one, ast.Call)]
    folds = [one for one in calls if getattr(one.func, "attr", getattr(one.func, "id", "")) == "fold_in"]
    for counter in (one.args[1] for one in folds if len(one.args) == 2):
        root = next((one.id for one in ast.walk(counter) if isinstance(one, ast.Name)), None)
        for told in reversed(returned_from(at.own[0])):
            inside = {one.id for one in ast.walk(told) if isinstance(one, ast.Name)}
            if root in inside and told.lineno != at.own[0][1]:
                return ast.unparse(counter), Place(own=((at.own[0][0], told.lineno), *at.own[1:]))
    return None
