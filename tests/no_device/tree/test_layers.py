# tests/no_device/tree/test_layers.py: which module may include or import which (docs/architecture.md).
"""Compares every #include and import of the tree with the table of layers."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]

# Folder of csrc, or room of such a folder -> the other folders, or rooms, that it may include.
CPP_LAYERS = {
    name: set(below.split())
    for name, below in (
        line.split(":") for line in (ROOT / "csrc/layers.txt").read_text().splitlines() if not line.startswith("#")
    )
}
# Headers of other projects -> the only folders that may include them.
ONLY = {
    r"^(torch|ATen|c10|pybind11)/": {"torch", "distributed", "python"},
    r"^CL/": {"runtime"},
    r"^sqlite3\.h": {"cache"},
    # Streams look up locale facets. If the extension contains its own copy of the C++ library, it may find another
    # copy's facets, and crash.
    r"^(sstream|iostream|ostream|istream|fstream|iomanip|regex|locale)$": set(),
}
# Module, package or room of torch_ocl_compile -> the others, or rooms, that it may import, anywhere in its files.
_PYTHON_ROWS = {
    "_C": "",
    "errors": "",
    "dtypes": "_C",
    "option": "errors",
    "config": "_C errors option",
    "identity": "_C",
    "reference": "_C dtypes",
    "fx": "_C errors reference",
    "decompositions": "fx",
    "user_kernel": "_C errors config",
    "lowering": "_C errors dtypes fx decompositions user_kernel",
    "lowering/core": "",
    "lowering/reductions": "core",
    "lowering/elementwise": "core reductions",
    "lowering/movement": "core reductions",
    "lowering/products": "core",
    "lowering/layers": "core reductions movement",
    "lowering/complex_numbers": "core reductions products",
    "lowering/graphs": "core movement",
    "tuning": "_C errors dtypes config",
    "cache_file": "_C errors identity tuning",
    "compile": "_C errors dtypes config identity reference fx decompositions user_kernel lowering tuning",
    "eager": "_C errors config identity fx decompositions lowering tuning compile",
    "package": "_C errors fx decompositions lowering compile eager",
    "device": "_C fx errors config identity cache_file decompositions compile eager",
    "report": "_C errors compile device",
    "__init__": "compile device report user_kernel",
    "lightning": "device",
    "tools": "_C errors tuning compile device __init__",
    "cli": "_C errors config cache_file tuning compile device report tools package __init__",
    "__main__": "cli",
}
PYTHON_LAYERS = {name: set(row.split()) for name, row in _PYTHON_ROWS.items()}
# Modules with imports inside functions -> why. `import torch`, or a command, then does not load a module it may not
# need.
LATE_IMPORTS = {
    "__init__": "the rest of the package is imported when it is used",
    "tools.bench_side": "only the side ocl registers the device",
    "cli.explain": "its help is shown without the compiler",
    "cli.package": "its help is shown without the compiler",
    "cli.tune": "its help is shown without the compiler",
    "cli.warm": "its help is shown without the compiler",
    "config": "options are read before the extension is loaded",
    "compile.plan": "measuring needs mode='max-autotune', and the interpreter the option check",
    "eager.stored": "only the option check needs the compiler",
    "device.artifacts": "archives are made of caches when the user asks for them",
    "device.current": "Dynamo traces this file",
    "device.default_backend": "Inductor compiles graphs on the CPU without our compiler",
    "report.explanation": "the page needs packages that the rest does without",
    "device.torch_ocl": "the times of compiled graphs are in the compiler, which is imported when it is used",
    "device.registration": "`import torch` ends with it; it loads the extension itself, and the compiler at the first op",
}


def includes(path):
    return re.findall(r'^\s*#include\s+[<"]([^>"]+)[>"]', path.read_text(), re.MULTILINE)


def row_of(parts, table):
    """Returns the folder and the room of a file. The room is empty if no row of the table names it."""
    folder, room, *_ = (*parts, "")
    return folder, room if f"{folder}/{room}" in table else ""


def may_use(row, other, table):
    """Says whether a file of the first row may use one of the other. A folder's own files may use all its rooms."""
    (folder, room), (other_folder, other_room) = row, other
    if folder != other_folder:
        return other_folder in table[folder]
    return not room or other_room in {room} | table[f"{folder}/{room}"]


def test_cpp_layers():
    wrong = []
    for path in sorted((ROOT / "csrc").rglob("*")):
        if path.suffix not in {".h", ".cpp", ".def"}:
            continue
        row = row_of(path.relative_to(ROOT / "csrc").parts, CPP_LAYERS)
        for name in includes(path):
            if name.startswith("csrc/") and not may_use(row, row_of(Path(name).parts[1:], CPP_LAYERS), CPP_LAYERS):
                wrong.append(f"{path.relative_to(ROOT)} includes {name}")
            for pattern, folders in ONLY.items():
                if re.match(pattern, name) and row[0] not in folders:
                    wrong.append(f"{path.relative_to(ROOT)} includes {name}")
    assert not wrong, "\n".join(wrong)


def file_circles():
    """Returns the groups of files that reach each other by includes."""
    graph: dict[str, set[str]] = {}
    for path in sorted((ROOT / "csrc").rglob("*")):
        if path.suffix in {".h", ".cpp"}:
            unit = re.sub(r"_(linux|windows)$", "", path.relative_to(ROOT / "csrc").with_suffix("").as_posix())
            names = {name[5:-2] for name in includes(path) if re.fullmatch(r"csrc/.*\.h", name)}
            graph.setdefault(unit, set()).update(names - {unit})

    def reached(unit):
        found, todo = set(), [unit]
        while todo:
            for name in graph.get(todo.pop(), ()):
                if name not in found:
                    found.add(name)
                    todo.append(name)
        return found

    reach = {unit: reached(unit) for unit in graph}
    return {
        " ".join(sorted(x for x in reach[unit] if unit in reach.get(x, ()))) for unit in graph if unit in reach[unit]
    }


def test_no_files_include_each_other_in_a_circle():
    assert not file_circles()


# What only files for one operating system may contain: headers of the system, and macros that name a system.
SYSTEM = re.compile(
    r"^\s*#\s*include\s*<((sys|net|arpa|linux)/.*|(unistd|fcntl|dlfcn|poll|pthread|signal|spawn|elf|link|windows|io|psapi|aclapi|sddl)\.h)>"
    r'|^#include "csrc/support/win32\.h"'
    r"|\b(_WIN32|__linux__|__unix__|_POSIX_\w+)\b",
    re.MULTILINE,
)


def test_only_support_knows_the_operating_system():
    wrong = []
    for path in sorted((ROOT / "csrc").rglob("*")):
        if path.suffix not in {".h", ".cpp", ".def"}:
            continue
        found = {match[0].strip() for match in SYSTEM.finditer(path.read_text())}
        if path.parent.name == "support" and (
            path.stem.endswith(("_linux", "_windows")) or path.name in {"win32.h", "compiler.h"}
        ):
            assert found, f"{path.name} depends on no system"
        elif found:
            wrong.append(f"{path.relative_to(ROOT)}: {', '.join(sorted(found))}")
    assert not wrong, "\n".join(wrong)


def test_each_system_has_its_files():
    def parts(system):
        return {path.stem for path in (ROOT / "csrc" / "support").glob(f"*_{system}.cpp")}

    linux = {name.removesuffix("_linux") for name in parts("linux")}
    assert linux == {"os", "child", "build_id"}
    assert linux <= {name.removesuffix("_windows") for name in parts("windows")}


PACKAGE = ROOT / "torch_ocl_compile"
# "compile.backend" -> its file. A package's __init__.py has the package's name.
MODULES = {
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
}


def imported(path):
    """Yields (module of the package, is it inside a function) for every import of a file."""
    tree = ast.parse(path.read_text())
    inside = {id(n) for f in ast.walk(tree) if isinstance(f, ast.FunctionDef) for n in ast.walk(f)}
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        for name in names:
            top, *parts = name.split(".")
            if top == "torch_ocl_compile":
                while parts and parts[0] != "_C" and ".".join(parts) not in MODULES:
                    # The last part is no module, but a name that a module defines.
                    parts.pop()
                yield (".".join(parts) or "__init__"), id(node) in inside


def test_table_has_every_folder_and_module():
    folders = {path.name for path in (ROOT / "csrc").iterdir() if path.is_dir()}
    assert {name for name in CPP_LAYERS if "/" not in name} == folders
    rooms = {path.parts[-2] + "/" + path.parts[-1] for path in (ROOT / "csrc/runtime").iterdir()}
    assert {name for name in CPP_LAYERS if name.startswith("runtime/")} == rooms
    assert {name for name in PYTHON_LAYERS if "/" not in name} == {name.split(".")[0] for name in MODULES} | {"_C"}
    rooms = {"/".join(path.parts[-2:]) for path in (PACKAGE / "lowering").iterdir() if (path / "__init__.py").exists()}
    assert {name for name in PYTHON_LAYERS if name.startswith("lowering/")} == rooms


@pytest.mark.parametrize("table", [CPP_LAYERS, PYTHON_LAYERS], ids=["cpp", "python"])
def test_table_has_no_circle(table):
    """Every row names only rows above it, so no two folders can depend on each other."""
    above: set[str] = set()
    for name, below in table.items():
        folder, slash, _ = name.partition("/")
        assert {folder + slash + other if slash else other for other in below} <= above, name
        above.add(name)


def test_python_layers():
    wrong = []
    for module, path in MODULES.items():
        row = row_of(module.split("."), PYTHON_LAYERS)
        for name, inside in imported(path):
            if not may_use(row, row_of(name.split("."), PYTHON_LAYERS), PYTHON_LAYERS):
                wrong.append(f"{module} imports {name}")
            if inside and module not in LATE_IMPORTS:
                wrong.append(
                    f"{module} imports {name} in a function: move it to the top, or say why not in LATE_IMPORTS"
                )
    assert not wrong, "\n".join(wrong)


def test_late_imports_are_needed():
    late = {module for module, path in MODULES.items() for _, inside in imported(path) if inside}
    assert late == set(LATE_IMPORTS)


def test_python_modules_have_no_circle():
    """Imports inside functions count, too. A package's __init__.py may import its modules."""
    graph = {module: {name for name, _ in imported(path) if name in MODULES} for module, path in MODULES.items()}
    done = set()

    def visit(module, path):
        assert module not in path, " -> ".join([*path[path.index(module) :], module])
        if module not in done:
            for name in sorted(graph[module]):
                visit(name, [*path, module])
            done.add(module)

    for module in graph:
        visit(module, [])


def test_every_file_states_its_purpose():
    missing = []
    for pattern in (
        "csrc/**/*.h",
        "csrc/**/*.cpp",
        "csrc/**/*.def",
        "kernels/**/*.cl",
        "torch_ocl_compile/**/*.py",
        "tests/**/*.py",
        "benchmarks/**/*.py",
    ):
        for path in ROOT.glob(pattern):
            first = path.read_text().split("\n", 1)[0]
            if (
                not first.startswith((f"// {path.relative_to(ROOT)}", f"# {path.relative_to(ROOT)}"))
                and path.name not in first
            ):
                missing.append(str(path.relative_to(ROOT)))
    assert not missing, "no purpose line: " + ", ".join(missing)
