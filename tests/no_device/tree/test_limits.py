# tests/no_device/tree/test_limits.py: lengths of files, functions and parameter lists, for all C++ and Python.
"""A file has at most 450 lines, a function 80, a parameter list 10.

The body of a kernel's function has at most 120 lines; its parameters, of which macros may add some, do not count. Exceptions
are rows with a reason, at most ten.
"""

import ast
import re
import runpy
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
FILE_LINES, FUNCTION_LINES, KERNEL_LINES, PARAMETERS = 450, 80, 120, 10
FOLDERS = ("csrc", "torch_ocl_compile", "tests", "benchmarks", "scripts", "examples", "kernels")

# The exceptions: key of a violation ("file lines", "file:function lines", "file:function parameters"; * for any text)
# -> reason.
EXCEPTIONS = {
    "*_backward parameters": "a gradient takes the arguments of its aten overload",
    "kernels/attention/item.cl:KERNEL_NAME lines": "the loops over tiles, heads and blocks share six private arrays",
    "kernels/conv/group.cl:KERNEL_NAME lines": "where pixels and filters are read differs by layout, in the same loop",
    "kernels/conv/item.cl:KERNEL_NAME lines": "the loops over taps, panels and rows share register tiles",
    "kernels/conv/warpgroup.cl:KERNEL_NAME lines": "a pipeline whose stages share barriers and accumulators",
    "kernels/conv/weight_group.cl:KERNEL_NAME lines": "the next step of both operands is held in registers while the tiles are multiplied",
    "kernels/conv/weight_warpgroup.cl:KERNEL_NAME lines": "a pipeline whose stages share barriers and accumulators",
    "kernels/gemm/item.cl:KERNEL_NAME lines": "four ways to read B feed the same loops over blocks and tiles",
    "kernels/winograd/group.cl:KERNEL_NAME lines": "transform, product and inverse share registers and local memory",
}


def without_text(code):
    """Returns the code with comments, strings and preprocessor lines blanked. Lines keep their numbers."""
    pattern = (
        r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'|^[ \t]*#(?:[^\n]*\\\n)*[^\n]*'
    )
    return re.sub(pattern, lambda m: re.sub(r"[^\n]", " ", m[0]), code, flags=re.DOTALL | re.MULTILINE)


def closing(code, at):
    """Returns the position behind the bracket that closes the one at `at`."""
    depth = 0
    for i in range(at, len(code)):
        depth += (code[i] in "([{") - (code[i] in ")]}")
        if depth == 0:
            return i + 1
    raise ValueError(f"no closing bracket for position {at}")


def parameter_count(text):
    """Returns the number of parameters in a list: commas outside of brackets and template arguments, plus one."""
    depth = commas = 0
    for c in text:
        depth += (c in "([{<") - (c in ")]}>")
        commas += c == "," and depth == 0
    return commas + 1 if text.strip() else 0


# Keywords before a bracket that does not open the parameters of a function.
NOT_A_FUNCTION = {"if", "for", "while", "switch", "catch", "return", "sizeof", "decltype", "alignas", "noexcept"}


def cpp_functions(code):
    """Yields (name, first line, lines, parameters) of functions defined at the level of namespaces and classes."""
    code = without_text(code)
    position = start = 0
    while position < len(code):
        c = code[position]
        if c in ";}" or (c == ":" and re.search(r"\b(public|private|protected)\s*$", code[start:position])):
            start = position + 1
        elif c == "(":
            end = closing(code, position)
            name = re.search(r"(operator\s*\S+|[~\w]+)\s*$", code[start:position])
            if name and name[1] not in NOT_A_FUNCTION and "=" not in code[start:position].split("operator")[0]:
                tail = re.match(r"\s*(const|noexcept|override|final|&|\s|->\s*[\w:<>,*& ]+)*", code[end:])
                brace = end + tail.end()
                # Skips the member initialisers of a constructor.
                if code[brace : brace + 1] == ":" and code[brace + 1 : brace + 2] != ":":
                    brace += 1
                    while True:
                        item = re.match(r"[\s\w:<>,]+", code[brace:])
                        brace = closing(code, brace + item.end())
                        if not re.match(r"\s*,", code[brace:]):
                            break
                    brace += len(code[brace:]) - len(code[brace:].lstrip())
                if code[brace : brace + 1] == "{":
                    stop = closing(code, brace)
                    first = code.count("\n", 0, start + len(code[start:]) - len(code[start:].lstrip())) + 1
                    last = code.count("\n", 0, stop - 1) + 1
                    yield name[1], first, last - first + 1, parameter_count(code[position + 1 : end - 1])
                    position = start = stop
                    continue
            position = end
            continue
        elif c == "{":
            head = code[start:position]
            if not re.search(r"\b(namespace|class|struct|union|extern)\b", head) or "=" in head:
                # Skips the braces of an enumeration or an initialiser: they contain no function.
                position = closing(code, position)
                continue
            start = position + 1
        position += 1


def python_functions(code):
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            a = node.args
            yield node.name, node.lineno, node.end_lineno - node.lineno + 1, len(a.posonlyargs + a.args + a.kwonlyargs)


def kernel_functions(code):
    """Yields (name, first line, lines of the body, 0) of the functions of a kernel file."""
    heads = r"^(?:ALWAYS_INLINE|OCL_\w+|ONE_ITEM|__kernel|static)\b(?:\s+__attribute__\(\(.*?\)\)\)|[\w\s*])*?\b(\w+)\("
    for m in re.finditer(heads + r"[^;]*?\{.*?^\}", code, re.DOTALL | re.MULTILINE):
        yield m[1], code.count("\n", 0, m.start()) + 1, m[0].count("\n", m[0].index("{")) + 1, 0


def sources():
    for folder in FOLDERS:
        suffixes = {".cl"} if folder == "kernels" else {".cpp", ".h", ".py"}
        yield from sorted(p for p in (ROOT / folder).rglob("*") if p.suffix in suffixes)


def violations():
    """Yields (key, message) for each limit that is violated."""
    for path in sources():
        name, code = str(path.relative_to(ROOT)), path.read_text()
        if code.count("\n") > FILE_LINES:
            yield f"{name} lines", f"{name} has {code.count(chr(10))} lines, above {FILE_LINES}"
        functions = {".py": python_functions, ".cl": kernel_functions}.get(path.suffix, cpp_functions)
        most_lines = KERNEL_LINES if path.suffix == ".cl" else FUNCTION_LINES
        for function, line, lines, parameters in functions(code):
            where = f"{name}:{line} {function}"
            if lines > most_lines:
                yield f"{name}:{function} lines", f"{where} has {lines} lines, above {most_lines}"
            if parameters > PARAMETERS:
                yield f"{name}:{function} parameters", f"{where} has {parameters} parameters, above {PARAMETERS}"


def test_limits():
    found = dict(violations())
    wrong = [message for key, message in found.items() if not any(fnmatchcase(key, row) for row in EXCEPTIONS)]
    assert not wrong, "split what is too long, or give a reason in EXCEPTIONS:\n" + "\n".join(wrong)
    unused = [row for row in EXCEPTIONS if not any(fnmatchcase(key, row) for key in found)]
    assert not unused, f"nothing breaks a limit here any more, remove the rows: {unused}"


def test_exceptions_are_few():
    assert len(EXCEPTIONS) <= 10 and all(EXCEPTIONS.values())


LONG_BODY = "\n".join(["  ++n;"] * 90)


@pytest.mark.parametrize(
    "code, found",
    [
        (f"namespace a {{\nint f(int n) {{\n{LONG_BODY}\n}}\n}}", [("f", 2, 92, 1)]),
        (f"struct S {{\n  S(int a, B<int, 2> b) : a_(a), b_{{b}} {{\n{LONG_BODY}\n  }}\n}};", [("S", 2, 92, 2)]),
        ("template <typename T>\nauto f(T t, std::map<T, int> m = {}) const -> T {\n  if (t) {\n  }\n}", [("f", 1, 5, 2)]),
        ("const char* kText = R\"(void f() {)\";  // }\nint g() { return '{'; }\n", [("g", 2, 1, 0)]),
        ("constexpr Row kRows[] = {{1, [](int x) { return x; }}};\nbool operator==(A a, B b) { return true; }", [("operator==", 2, 1, 2)]),
    ],
)  # fmt: skip
def test_functions_are_found(code, found):
    assert list(cpp_functions(code)) == found


def test_a_room_that_grows_fails(tmp_path):
    rooms = runpy.run_path(str(ROOT / "scripts" / "rooms.py"))
    (tmp_path / "csrc" / "ir").mkdir(parents=True)
    (tmp_path / "csrc" / "ir" / "graph.h").write_text("a\nb\nc\n")
    (tmp_path / "csrc" / "all.cpp").write_text("a\n")
    lines = rooms["lines_of_rooms"](["csrc", "csrc/ir"], tmp_path)
    assert lines == {"csrc": 1, "csrc/ir": 3}
    assert rooms["too_large"]({"csrc": 1, "csrc/ir": 3}, lines) == []
    [fault] = rooms["too_large"]({"csrc": 1, "csrc/ir": 2}, lines)
    assert "csrc/ir has 3 lines, 1 more" in fault and "give the reason" in fault
