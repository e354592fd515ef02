# torch_ocl_compile/package/refusals.py: what a package cannot do because it has one graph and no PyTorch.
from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch._dynamo.exc import UserError, UserErrorType
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from torch_ocl_compile.errors import OclError, UnsupportedError
from torch_ocl_compile.fx.control_flow import control_flow_name, is_control_flow
from torch_ocl_compile.fx.host_part import tensors_of
from torch_ocl_compile.fx.origin import describe

_REMEDY = "  do:    compute with tensors whose sizes are known; torch.where(condition, a, b) chooses between values"

_CHECKED = (
    "  do:    give the Dim other bounds, or save torch.export.export(model, args, dynamic_shapes=...,\n"
    "         prefer_deferred_runtime_asserts_over_guards=True): then each call of the package checks its sizes"
)


def refuse_decisions(graph: torch.fx.Graph) -> None:
    """Refuses a graph in which values of tensors decide sizes, numbers or which ops run. UnsupportedError names the op and the line."""
    for node in graph.nodes:
        if is_control_flow(node):
            problem = f"{control_flow_name(node)} decides at run time which graph runs, and a package has one graph"
        elif node.meta.get("unbacked_bindings"):
            what = "a tensor whose size" if tensors_of(node.meta.get("val")) else "a number that"
            name = "item()" if node.target is torch.ops.aten._local_scalar_dense.default else str(node.target)
            problem = f"{name} returns {what} depends on the values of a tensor, which a package does not know"
        else:
            continue
        raise UnsupportedError(f"{problem}\n{describe(node)}\n{_REMEDY}")


@contextmanager
def naming(method: str) -> Iterator[None]:
    """Lets errors of this package name the method, and turns torch.export's errors about a model into such errors."""
    try:
        yield
    except GuardOnDataDependentSymNode as error:
        place = re.search(r"The following call raised this error:\n(.*?)\n\n", str(error), re.DOTALL)
        where = f"\n  where:\n{place[1].rstrip()}" if place else ""
        raise UnsupportedError(
            f"method {method} cannot be packaged: the values of a tensor decide what the model does next{where}\n{_REMEDY}"
        ) from error
    except UserError as error:
        if error.error_type is not UserErrorType.CONSTRAINT_VIOLATION:
            raise
        violated = str(error).partition("\n\n")[0]
        raise UnsupportedError(f"method {method} cannot be packaged: {violated}\n{_CHECKED}") from error
    except OclError as error:
        kind = UnsupportedError if isinstance(error, UnsupportedError) else type(error)
        raise kind(f"method {method} cannot be packaged: {error}") from error
