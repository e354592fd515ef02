# tests/null/test_layers.py: who may include whom (docs/architecture.md): arrows run one way.
"""Every #include and import of the tree against the table of layers."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# folder of csrc -> the other folders it may include
CPP_LAYERS = {
    "support": set(),
    "ir": {"support"},
    "schedule": {"ir", "support"},
    "codegen": {"schedule", "ir", "support"},
    "runtime": {"support"},
    "cache": {"support"},
    "checks": {"codegen", "schedule", "ir", "runtime", "support"},
    "exec": {"checks", "codegen", "schedule", "ir", "runtime", "cache", "support"},
    "torch": {"exec", "codegen", "schedule", "ir", "runtime", "support"},
    "python": {"torch", "exec", "checks", "codegen", "schedule", "ir", "runtime", "cache", "support"},
}
# outside headers: who alone may include them
ONLY = {
    r"^(torch|ATen|c10|pybind11)/": {"torch", "python"},
    r"^CL/": {"runtime"},
    r"^sqlite3\.h": {"cache"},
}
# Python: module or package -> what of the package it may not import at module level
PYTHON_FORBIDDEN = {
    "config": {"symbolic", "lowering", "backend", "cli", "device"},
    "errors": {"symbolic", "lowering", "backend", "cli", "device", "config"},
    "symbolic": {"lowering", "backend", "cli"},
    "lowering": {"backend", "cli", "demo"},
    "backend": {"cli", "demo"},
}


def includes(path):
    return re.findall(r'^\s*#include\s+[<"]([^>"]+)[>"]', path.read_text(), re.MULTILINE)


@pytest.mark.parametrize("folder", sorted(CPP_LAYERS))
def test_cpp_layers(folder):
    wrong = []
    for path in sorted((ROOT / "csrc" / folder).rglob("*")):
        if path.suffix not in {".h", ".cpp", ".def"}:
            continue
        for name in includes(path):
            if name.startswith("csrc/"):
                other = name.split("/")[1]
                if other != folder and other not in CPP_LAYERS[folder]:
                    wrong.append(f"{path.relative_to(ROOT)} includes {name}")
            for pattern, allowed in ONLY.items():
                if re.match(pattern, name) and folder not in allowed:
                    wrong.append(f"{path.relative_to(ROOT)} includes {name}")
    assert not wrong, "\n".join(wrong)


def module_imports(path):
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("torch_ocl_compile"):
            inner = node.module.split(".")[1:]
            yield from ([inner[0]] if inner else [alias.name for alias in node.names])
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith("torch_ocl_compile."):
                    yield alias.name.split(".")[1]


@pytest.mark.parametrize("part", sorted(PYTHON_FORBIDDEN))
def test_python_layers(part):
    base = ROOT / "torch_ocl_compile" / part
    files = sorted(base.rglob("*.py")) if base.is_dir() else [base.with_suffix(".py")]
    wrong = [
        f"{f.relative_to(ROOT)} imports {name}"
        for f in files
        for name in module_imports(f)
        if name in PYTHON_FORBIDDEN[part]
    ]
    assert not wrong, "\n".join(wrong)


def test_every_file_states_its_purpose():
    missing = []
    for pattern in (
        "csrc/**/*.h",
        "csrc/**/*.cpp",
        "csrc/**/*.def",
        "kernels/**/*.cl",
        "torch_ocl_compile/**/*.py",
        "tests/**/*.py",
        "benchmarks/*.py",
    ):
        for path in ROOT.glob(pattern):
            first = path.read_text().split("\n", 1)[0]
            if (
                not first.startswith((f"// {path.relative_to(ROOT)}", f"# {path.relative_to(ROOT)}"))
                and path.name not in first
            ):
                missing.append(str(path.relative_to(ROOT)))
    assert not missing, "no purpose line: " + ", ".join(missing)
