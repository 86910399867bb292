"""Compilation of LLVM IR to functions of this process, with the features of the host, cached by shape and output."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from types import ModuleType
from typing import Any

from veil.distances.cpu.codegen import bounds, double, listed, origins, outputs, panels, points, ranking, rounding, selection
from veil.distances.cpu.codegen.shape import Shape
from veil.errors import VeilError

# Variants of the double-precision code: type of number in which rows are stored, "whole" if they fill vectors exactly.
STORED = ("float", "float whole", "double", "double whole")
# Numbers of arguments of the compiled functions, in this order: pointers, 64-bit integers, floats.
ARGUMENTS = {
    "dense": (6, 6, 1),
    "best_two": (8, 4, 1),
    "bounds": (8, 4, 1),
    "below": (4, 3, 0),
    "listed": (7, 2, 0),
    "minimal": (7, 3, 0),
    "exact": (12, 3, 0),
    "points": (6, 3, 0),
    "rounded": (3, 4, 1),
    "ranked": (7, 1, 0),
    "panels": (4, 3, 1),
    "within": (5, 3, 1),
}
# Functions that the compilation of each output yields. Outputs of variants carry the variant's name.
FUNCTIONS = {
    "dense": ("dense",),
    "best_two": ("best_two",),
    "bounds": ("bounds", "below"),
    "listed": ("listed",),
    **{f"{name} {kind}": (name,) for name in ("minimal", "exact") for kind in STORED},
    "points of float": ("points",),
    "points of double": ("points",),
    "rounded float": ("rounded",),
    "rounded double": ("rounded",),
    "ranked": ("ranked",),
    "panels float": ("panels",),
    "panels double": ("panels",),
    "within rows": ("within",),
    "within columns": ("within",),
}
Kernel = Callable[..., None]

# Shape that `trial` compiles: pairs of m = 1, whose code calls every intrinsic that kernels use.
TRIAL = Shape(left=2, right=2, lanes=4)

_cache: dict[tuple[Shape, str], tuple[dict[str, Kernel], Any]] = {}
_lock = threading.Lock()
# Message of the compiler when it failed, after which this process does not try again.
_failure: str | None = None


class CompileError(VeilError):
    """Error that the compiler cannot make a kernel; the message says why, and which backend serves in its place."""


def obstacle() -> str | None:
    """Reason why this host cannot compile, as far as is known yet, or None."""
    return _failure or _host_obstacle()


def trial() -> str | None:
    """Reason why this host cannot compile, or None, found out by compiling kernels of a small shape, which takes some 0.1 s."""
    if obstacle() is None:
        shape = replace(TRIAL, lanes=host_lanes())
        with contextlib.suppress(CompileError):
            for output in FUNCTIONS:
                kernels(shape, output)
            if has_vnni(shape.lanes):
                kernels(replace(shape, fixed=True), "best_two")
    return obstacle()


@cache
def _host_obstacle() -> str | None:
    """Reason why this host cannot compile that is known without compiling: no llvmlite, or no executable memory."""
    try:
        _target(_binding())
    except ImportError as error:
        return f"llvmlite cannot be imported ({error}); install llvmlite"
    except RuntimeError as error:
        return f"LLVM does not know this processor ({_in_short(error)})"
    if sys.platform != "win32":
        try:
            mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_EXEC).close()
        except OSError as error:
            return f"this host refuses executable memory ({error})"
    return None


@cache
def host_lanes() -> int:
    """Number of floats in the widest vector that this processor adds and multiplies at once."""
    features = _binding().get_host_cpu_features()
    if features.get("avx512f") and features.get("avx512vl") and features.get("avx512dq"):
        return 16
    return 8 if features.get("avx2") and features.get("fma") else 4


@cache
def has_vnni(lanes: int) -> bool:
    """Whether this processor multiplies 16-bit numbers and adds pairs of products, in vectors of `lanes` 32-bit sums (VNNI)."""
    features = _binding().get_host_cpu_features()
    wide = bool(features.get("avx512vnni") and features.get("avx512vl"))
    return (wide and lanes in (8, 16)) or (bool(features.get("avxvnni")) and lanes == 8)


def kernels(shape: Shape, output: str) -> dict[str, Kernel]:
    """Compiled functions of an output of `FUNCTIONS` for a shape, by name, from the cache where they were compiled before.

    They hold no lock while they run. Raises CompileError where the host cannot compile.
    """
    global _failure
    with _lock:
        if (shape, output) not in _cache:
            reason = obstacle()
            if reason is None:
                try:
                    _cache[shape, output] = _compiled(shape, output)
                except RuntimeError as error:  # what LLVM refuses, llvmlite raises as this
                    reason = _failure = f"llvmlite {_version()} cannot compile a kernel ({_in_short(error)}); update llvmlite"
            if reason:
                raise CompileError(f"backend 'cpu' cannot serve: {reason}, or use backend 'numpy'")
        return _cache[shape, output][0]


def assembly(shape: Shape, output: str) -> str:
    """Assembly of an output for a shape, for people to read."""
    binding = _binding()
    return str(_target(binding).emit_assembly(binding.parse_assembly(_text(shape, output))))


def _text(shape: Shape, output: str) -> str:
    """LLVM IR of an output of `FUNCTIONS` for a shape."""
    name, _, stored = output.partition(" ")
    if name in ("minimal", "exact"):
        return {"minimal": origins, "exact": double}[name].module(shape, stored)
    if output.startswith("points of "):
        return points.module(shape, output.removeprefix("points of "))
    if name in ("panels", "within"):
        return {"panels": panels, "within": selection}[name].module(shape, stored)
    if output.startswith("rounded "):
        return rounding.module(shape, output.removeprefix("rounded "))
    others = {"bounds": bounds.module, "listed": listed.module, "ranked": ranking.module}
    return others[output](shape) if output in others else outputs.module(shape, output)


def _compiled(shape: Shape, output: str) -> tuple[dict[str, Kernel], Any]:
    """Functions of an output for a shape, by name, and the engine that owns their code."""
    binding = _binding()
    parsed = binding.parse_assembly(_text(shape, output))
    parsed.verify()
    engine = binding.create_mcjit_compiler(parsed, _target(binding))
    engine.finalize_object()
    functions: dict[str, Kernel] = {}
    for name in FUNCTIONS[output]:
        pointers, integers, floats = ARGUMENTS[name]
        types = [ctypes.c_void_p] * pointers + [ctypes.c_int64] * integers + [ctypes.c_float] * floats
        address = engine.get_function_address(name)
        if not address:
            raise RuntimeError(f"no code for {name}")
        functions[name] = ctypes.CFUNCTYPE(None, *types)(address)
    return functions, engine


def _target(binding: ModuleType) -> Any:
    """Target machine of this processor with its features, without LLVM's preference for narrow vectors on wide hardware."""
    features = binding.get_host_cpu_features()
    features["prefer-256-bit"] = False
    target = binding.Target.from_default_triple()
    return target.create_target_machine(cpu=binding.get_host_cpu_name(), features=features.flatten(), opt=3, jit=True)


def _version() -> str:
    import llvmlite

    return str(llvmlite.__version__)


def _in_short(error: Exception) -> str:
    """First two lines of an error's message on one line, or the name of its class."""
    return " ".join(str(error).split("\n")[:2]).strip() or type(error).__name__


def _binding() -> ModuleType:
    """The module `llvmlite.binding`, initialized for this processor."""
    import llvmlite.binding as binding

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    return binding
