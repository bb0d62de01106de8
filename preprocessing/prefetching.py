"""Asking the processor for memory before it is read, in numba's kernels.

A kernel that reads at random waits for memory most of its time: asked for some entries ahead, several reads are under
way at once. An address that is not there is ignored.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

__all__ = ["prefetch"]


@intrinsic
def prefetch(_context: Any, array: Any, _index: Any) -> Any:
    """``prefetch(array, index)``: the cache line that holds ``array[index]``, of a 1-D array in C order, to be read."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        held = context.make_array(signature.args[0])(context, builder, arguments[0])
        byte = ir.IntType(8).as_pointer()
        number = ir.IntType(32)
        called = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(ir.VoidType(), [byte, number, number, number]), "llvm.prefetch.p0"
        )
        address = builder.bitcast(builder.gep(held.data, [arguments[1]]), byte)
        # To be read, kept in every cache, data.
        builder.call(called, [address, number(0), number(3), number(1)])
        return context.get_dummy_value()

    return types.void(array, types.intp), generate
