"""What decides an audit's numbers, as digests: code, data, claim, libraries and settings.

Code is every module file that is loaded now and does not belong to an unmodified installed distribution; of our own
packages and of distributions installed in editable mode every Python file, loaded or not. What a step imports later,
reads from disk or asks of the network is not seen.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import os
import pickle
import sys
import sysconfig
import types
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import jax
import numpy as np

from audit.record.environment import describe_versions
from audit.trials.library_files import source_of
from guarantees.claim import Claim
from mechanisms.pairs.datasets import is_torch_dataset
from mechanisms.release import host_bits

OWN = ("audit", "distinguishers", "guarantees", "mechanisms")
SETTINGS = (
    "jax_enable_x64",
    "jax_default_prng_impl",
    "jax_threefry_partitionable",
    "jax_default_matmul_precision",
    "jax_default_dtype_bits",
    "jax_numpy_dtype_promotion",
    "jax_numpy_rank_promotion",
    "jax_disable_jit",
    "jax_debug_nans",
    "jax_random_seed_offset",
)
VARIABLES = ("XLA_FLAGS", "LIBTPU_INIT_ARGS", "NVIDIA_TF32_OVERRIDE", "OMP_NUM_THREADS")
CURVE_POINTS = 33
SKIPPED = {"__pycache__", "node_modules", "build", "dist"}
"""Folders of a project that hold no source of its own; hidden ones are skipped too."""


def decided_by(
    *,
    parts: Iterable[Any],
    claim: Claim,
    files: Iterable[Path],
    code: str,
    device: str,
    others: Mapping[str, Any],
) -> dict[str, Any]:
    """Plain data that changes whenever an audit's numbers may.

    ``files`` are a program and what it depends on, ``code`` is the digest of the code in this process, ``device`` what
    trials run on.
    """
    return {
        **others,
        "parts": [digest_of(part) for part in parts],
        "claim": _claim(claim),
        "files": {str(path): _tree(path) for path in files},
        "code": code,
        "environment": describe_versions(device),
        "settings": settings(),
    }


def code_digest() -> str:
    """One digest of all code that is not an unmodified installed distribution, and of the versions of the rest."""
    files = {str(path): _file(path) for path in sorted(_source_files())}
    return _digest({"files": files, "libraries": _libraries()})


def settings() -> dict[str, str]:
    """JAX's settings and the variables that change what a program computes."""
    values: Mapping[str, Any] = jax.config.values
    chosen = {name: repr(values[name]) for name in SETTINGS if name in values}
    return chosen | {name: os.environ[name] for name in VARIABLES if name in os.environ}


def digest_of(value: Any) -> str:
    """A digest of what a value holds: arrays by their bytes, objects by their fields, functions by their closures."""
    return _digest(_content(value, depth=0))


def _content(value: Any, depth: int) -> Any:
    if value is None or isinstance(value, bool | int | float | str | bytes | complex | type):
        return repr(value)
    if depth > 20:
        return _pickled(value)
    inner = functools.partial(_content, depth=depth + 1)
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return _array(value)
    if isinstance(value, Mapping):
        return {repr(key): inner(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [type(value).__qualname__, *map(inner, value)]
    if dataclasses.is_dataclass(value):
        # our laws keep what they have computed in private fields
        own = _is_ours(value)
        names = [f.name for f in dataclasses.fields(value) if not (own and f.name.startswith("_"))]
        return [type(value).__qualname__, {name: inner(getattr(value, name)) for name in names}]
    if isinstance(value, functools.partial):
        return ["partial", inner(value.func), inner(value.args), inner(value.keywords)]
    if isinstance(value, types.MethodType):
        return ["method", value.__func__.__qualname__, inner(value.__self__)]
    if isinstance(value, types.FunctionType):
        return _function(value, inner)
    if isinstance(value, types.ModuleType):
        # its file is hashed with the code
        return ["module", value.__name__]
    if is_torch_dataset(value):
        # pickled tensors hold addresses
        return [type(value).__qualname__, inner(vars(value))]
    return _pickled(value)


def _function(function: types.FunctionType, inner: Any) -> list[Any]:
    """Its name, code and captured values; what it calls is in module files, which are hashed with the code."""
    cells = []
    for cell in function.__closure__ or ():
        try:
            cells.append(inner(cell.cell_contents))
        except ValueError:
            cells.append("empty")
    code = [function.__code__.co_code.hex(), repr(function.__code__.co_consts if _flat(function) else "nested")]
    return [function.__module__, function.__qualname__, code, cells, inner(function.__defaults__ or ())]


def _flat(function: types.FunctionType) -> bool:
    """Whether its constants print without the addresses of inner functions."""
    return not any(isinstance(constant, types.CodeType) for constant in function.__code__.co_consts)


def _array(value: Any) -> list[Any]:
    array = host_bits(value)
    return [str(array.dtype), list(array.shape), hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()]


def _pickled(value: Any) -> str:
    """The bytes of anything else; what cannot be pickled never equals anything, so it is never taken for known."""
    try:
        return hashlib.sha256(pickle.dumps(value)).hexdigest()
    except Exception:
        return f"unknown {os.urandom(16).hex()}"


def _claim(claim: Claim) -> list[Any]:
    if _of_ours(claim.law):
        # what it holds and our code, which is hashed, decide its curve, which may take minutes to draw
        curve = digest_of(claim.law)
    else:
        alpha = np.linspace(0, 1, CURVE_POINTS)
        curve = [claim.error, *np.asarray(claim.beta(alpha), np.float64).tolist()]
    return [claim.name, digest_of(dict(claim.parameters)), claim.relation, curve]


def _is_ours(value: Any) -> bool:
    """Whether its class is one of ``guarantees``, whose every file is hashed."""
    return type(value).__module__.split(".")[0] == "guarantees"


def _of_ours(law: Any) -> bool:
    """Whether a law and all laws that it is made of are ours: somebody else's may hide what decides it."""
    held = [getattr(law, f.name) for f in dataclasses.fields(law)] if dataclasses.is_dataclass(law) else []
    laws = [part for value in held for part in (value if isinstance(value, tuple) else [value])]
    return _is_ours(law) and all(_of_ours(part) for part in laws if hasattr(part, "tails"))


def _tree(path: Path) -> Any:
    """The digest of a file, or of every file under a folder."""
    if path.is_dir():
        return {str(file.relative_to(path)): _file(file) for file in sorted(path.rglob("*")) if file.is_file()}
    return _file(path)


def _source_files() -> set[Path]:
    roots = [Path(module.__file__).parent for name in OWN if (module := sys.modules.get(name)) and module.__file__]
    found, homes = {file for root in roots for file in _python_files(root)}, set()
    for path in _loaded_files():
        if _installed(path):
            continue
        found.add(path)
        homes |= {root for root in _editable_roots() if root in path.parents}
    return found | {file for home in homes for file in _python_files(home)}


def _loaded_files() -> list[Path]:
    files = []
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and os.path.isfile(file):
            files.append(_resolved(file))
    return files


def _resolved(file: str) -> Path:
    """The file itself, not a link to it; each folder is resolved once, as thousands of files share a few hundred."""
    folder, name = os.path.split(file)
    return Path(os.path.realpath(file) if os.path.islink(file) else os.path.join(_real_folder(folder), name))


@functools.lru_cache(maxsize=4096)
def _real_folder(folder: str) -> str:
    return os.path.realpath(folder)


@functools.cache
def _installed_roots() -> tuple[str, ...]:
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    return tuple({f"{Path(path).resolve()}{os.sep}" for name in names if (path := sysconfig.get_path(name))})


def _installed(path: Path) -> bool:
    """Whether the file is the standard library's, or a distribution's and unchanged since it was installed.

    One that comes from the working folder is not, since its version need not change with its code.
    """
    if not str(path).startswith(_installed_roots()) or source_of(str(path)) is not None:
        return False
    installed_at = _written().get(str(path))
    return installed_at is None or path.stat().st_mtime <= installed_at + 1.0


@functools.cache
def _written() -> dict[str, float]:
    """When each installed Python file was put in place: its distribution's RECORD is written last."""
    times = {}
    for distribution in metadata.distributions():
        folder = getattr(distribution, "_path", None)
        record = None if folder is None else Path(str(folder), "RECORD")
        if record is None or not record.is_file():
            continue
        stamp, site = record.stat().st_mtime, str(record.parent.parent.resolve())
        for line in record.read_text(errors="replace").splitlines():
            name = line.split(",")[0].strip('"')
            if name.endswith((".py", ".so", ".pyd")):
                times[f"{site}{os.sep}{name}"] = stamp
    return times


@functools.cache
def _editable_roots() -> tuple[Path, ...]:
    roots = []
    for distribution in metadata.distributions():
        text = distribution.read_text("direct_url.json")
        told = json.loads(text) if text else {}
        # of ours the four packages are hashed, wherever they were loaded from
        if told.get("dir_info", {}).get("editable") and distribution.metadata["Name"] != "dpsgd-audit":
            roots.append(Path(unquote(urlparse(told["url"]).path)).resolve())
    return tuple(roots)


def _python_files(root: Path) -> set[Path]:
    found = set()
    for folder, names, files in os.walk(root):
        names[:] = [name for name in names if name not in SKIPPED and not name.startswith(".")]
        found |= {_resolved(os.path.join(folder, file)) for file in files if file.endswith(".py")}
    return found


def _libraries() -> dict[str, str]:
    """Versions of everything installed, as folders of metadata are named after them; others are read."""
    found = {}
    for distribution in metadata.distributions():
        folder = str(getattr(distribution, "_path", ""))
        name, _, version = os.path.basename(folder).removesuffix(".dist-info").partition("-")
        if not (folder.endswith(".dist-info") and version):
            told = distribution.metadata
            name, version = told["Name"], told["Version"]
        if name:
            found[name] = version
    return found


def _file(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _digest(data: Any) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:24]
