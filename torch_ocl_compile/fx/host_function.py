# torch_ocl_compile/fx/host_function.py: keeps a small graph that runs on the host as source text, so that it can be
# stored.
from __future__ import annotations

from operator import attrgetter
from types import SimpleNamespace
from typing import Any

import torch
from torch.fx.graph_module import _format_import_block
from torch.package.importer import sys_importer


class HostFunction:
    """A function on the host. `source` defines `forward`. The first argument of `forward` is an object with the
    `attributes` (path -> value). Both are pickled.
    """

    def __init__(self, source: str, attributes: dict[str, Any]) -> None:
        self.source = source
        self.attributes = attributes
        scope: dict[str, Any] = {}
        exec(source, scope)
        self.function = scope["forward"]
        self.owner = SimpleNamespace()
        for path, value in attributes.items():
            *folders, name = path.split(".")
            place = self.owner
            for folder in folders:
                if not hasattr(place, folder):
                    setattr(place, folder, SimpleNamespace())
                place = getattr(place, folder)
            setattr(place, name, value)

    def __call__(self, *args: Any) -> Any:
        return self.function(self.owner, *args)

    def __reduce__(self) -> tuple[Any, ...]:
        return HostFunction, (self.source, self.attributes)

    @staticmethod
    def of(module: torch.fx.GraphModule) -> HostFunction:
        """Makes the source text of a graph. Raises an error of torch.package for a node whose function cannot be
        imported."""
        code = module.graph.python_code("self")
        attributes: dict[str, Any] = {}
        for node in module.graph.nodes:
            if node.op == "get_attr":
                attributes[str(node.target)] = attrgetter(str(node.target))(module)
        return HostFunction(_format_import_block(code.globals, sys_importer) + "\n" + code.src, attributes)
