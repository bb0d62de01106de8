"""Telling the processor which memory a kernel will read soon: a hint, without any effect on results."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

__all__ = ["prefetch"]

_READ, _KEEP, _DATA = 0, 3, 1


@intrinsic
def prefetch(_typing: Any, array: Any, _place: Any) -> Any:
    """``prefetch(array, place)`` in a kernel: fetch that entry of a flat array; the place may lie outside of it.

    LLVM's ``llvm.prefetch``, one instruction that never faults.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        pointer = builder.bitcast(builder.gep(data, [arguments[1]]), ir.IntType(8).as_pointer())
        word = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer.type, word, word, word])
        function = builder.module.declare_intrinsic("llvm.prefetch", [pointer.type], kind)
        builder.call(function, [pointer, *(ir.Constant(word, flag) for flag in (_READ, _KEEP, _DATA))])
        return context.get_dummy_value()

    return types.void(array, types.int64), generate
