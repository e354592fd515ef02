# tests/device/stored/test_package_programs.py: the C and C++ programs of examples/package give the results of PyTorch.
import ctypes.util
import importlib.util
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

import ocl_run
import torch_ocl_compile
from benchmarks.harness.networks import import_torchvision
from ocl_run.library import folder
from torch_ocl_compile import package

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "examples" / "package"

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None or shutil.which("g++") is None, reason="needs gcc")


@pytest.fixture(scope="module")
def makers():
    import_torchvision()  # A plain import fails with a CPU-only torch.
    spec = importlib.util.spec_from_file_location("make_packages", EXAMPLES / "make_packages.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def headers():
    """A checkout that is not installed has the headers beside their sources."""
    return folder() if Path(folder(), "ocl_run.h").exists() else ROOT / "csrc" / "run"


def build(source, target, *libraries):
    compiler, language = ("g++", "-std=c++17") if str(source).endswith(".cpp") else ("gcc", "-std=c11")
    flags = [
        "-O1",
        "-Wall",
        "-Wextra",
        "-Werror",
        language,
        f"-I{headers()}",
        f"-L{folder()}",
        f"-Wl,-rpath,{folder()}",
    ]
    subprocess.run([compiler, *flags, str(EXAMPLES / source), "-locl_run", *libraries, "-o", str(target)], check=True)
    return target


PATHS = r"""
#include <cstdio>
#include "ocl_run.hpp"
int main(int, char** argv) try {
  ocl_run::Model model(argv[1]);
  auto vector = [&](float first) { return model.tensor({3}, std::vector<float>{first, first + 1, first + 2}); };
  std::map<std::string, ocl_run::Value> given = {
      {"past.1.key", vector(20)}, {"scale.by", vector(1)}, {"x", vector(0)}, {"past.0.key", vector(10)}};
  auto results = model.call_named("forward", given);
  for (const char* path : {"logits", "past.0.key", "past.1.key"})
    for (float value : results.at(path).tensor().read<float>()) std::printf("%g ", value);
  given.erase("x");
  try {
    model.call_named("forward", given);
  } catch (const std::logic_error&) {
    std::puts("missing");
  }
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
"""


def run(*command, text=""):
    return subprocess.run([str(c) for c in command], input=text, capture_output=True, text=True)


@pytest.mark.parametrize("name", ["unsigned", "unsigned long", "long double", "char*"])
def test_types_that_packages_do_not_have(tmp_path, name):
    """The compiler's first error is the sentence of the header."""
    source = f'#include "ocl_run.hpp"\nint main() {{ return ocl_run::dtype_of<{name}>(); }}\n'
    (tmp_path / "main.cpp").write_text(source)
    done = run("g++", "-std=c++17", "-fsyntax-only", f"-I{headers()}", tmp_path / "main.cpp")
    errors = [line for line in done.stderr.splitlines() if "error:" in line]
    assert done.returncode != 0 and len(errors) == 1 and "packages have tensors of bool, uint8_t" in errors[0], (
        done.stderr
    )


def test_the_library_has_a_version(tmp_path):
    """Programs ask for this version when they start, and a header compiles alone as C and C++."""
    (tmp_path / "main.c").write_text(
        '#include <stdio.h>\n#include "ocl_run.h"\nint main(void) { puts(ocl_version()); return ocl_tensor_dims(NULL) != -1; }\n'
    )
    program = build(tmp_path / "main.c", tmp_path / "main")
    assert b"libocl_run.so.0\0" in program.read_bytes()
    assert run(program).stdout.strip() == torch_ocl_compile.__version__


class Nested(torch.nn.Module):
    def forward(self, x, past, *, scale):
        keys = [layer["key"] + x for layer in past]
        return {"logits": x * scale["by"], "past": tuple({"key": key} for key in keys)}


def test_names_are_paths(tmp_path, ocl_device):
    """A C++ program gives arguments and takes results by their places in dicts, lists and tuples."""
    x = torch.arange(3.0)
    past = [{"key": x + 10}, {"key": x + 20}]
    method = package.Method(Nested().eval(), (x, past), kwargs={"scale": {"by": x + 1}})
    package.save(tmp_path / "nested.ocl", {"forward": method})
    names = ["x", "past.0.key", "past.1.key", "scale.by"]
    model = ocl_run.load(tmp_path / "nested.ocl")
    assert [name for name, _ in model.forward.arguments] == names
    assert [name for name, _ in model.forward.results] == ["logits", "past.0.key", "past.1.key"]
    (tmp_path / "main.cpp").write_text(PATHS)
    done = run(build(tmp_path / "main.cpp", tmp_path / "main"), tmp_path / "nested.ocl")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["0", "2", "6", "10", "12", "14", "20", "22", "24", "missing"]


def test_digits(makers, tmp_path, ocl_device):
    datasets = pytest.importorskip("sklearn.datasets")
    makers.digits(tmp_path, False)
    images, labels = datasets.load_digits(return_X_y=True)
    text = "\n".join(" ".join(f"{v:g}" for v in image) for image in images[1500:])
    done = run(build("digits.c", tmp_path / "digits"), tmp_path / "digits.ocl", text=text)
    assert done.returncode == 0, done.stderr
    found = [int(line) for line in done.stdout.split()]
    right = sum(a == b for a, b in zip(found, labels[1500:], strict=True))
    assert right > 0.9 * len(found)


class Strokes(torch.nn.Module):
    """A number from 0 to 9 for each image, in place of a trained network."""

    def forward(self, images):
        return images.sum((1, 2)).long() % 10 + (torch.arange(images.shape[0], device=images.device) % 4)


def test_a_program_with_opencl_of_its_own(tmp_path, ocl_device):
    """In the first platform that the loader lists, which may be another than that of ocl_device."""
    if ctypes.util.find_library("OpenCL") is None:
        pytest.skip("needs an OpenCL loader of the system")
    batch = torch.export.Dim("batch", min=1, max=64)
    package.save(
        tmp_path / "strokes.ocl", Strokes().eval(), (torch.zeros(2, 8, 8),), dynamic_shapes={"images": {0: batch}}
    )
    done = run(build("own_opencl.c", tmp_path / "own_opencl", "-l:libOpenCL.so.1"), tmp_path / "strokes.ocl")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["6", "7", "8", "9"]  # 2 x 8 pixels of 16, and the number of the image


def test_classify(makers, tmp_path, ocl_device):
    if importlib.util.find_spec("torchvision") is None:
        pytest.skip("needs torchvision")
    makers.classify(tmp_path, False)
    torch.manual_seed(1)
    image = torch.randint(0, 256, (300, 400, 3), dtype=torch.uint8)
    (tmp_path / "image.ppm").write_bytes(b"P6 400 300 255\n" + image.numpy().tobytes())
    done = run(build("classify.c", tmp_path / "classify"), tmp_path / "classify.ocl", tmp_path / "image.ppm")
    assert done.returncode == 0, done.stderr
    best, labels = ocl_run.load(tmp_path / "classify.ocl")(image).values()
    expected = [f"{100 * p:5.1f} %  class {k}" for p, k in zip(best.tolist(), labels.tolist(), strict=True)]
    assert done.stdout.splitlines() == expected
    bad = run(tmp_path / "classify", tmp_path / "image.ppm", tmp_path / "image.ppm")
    assert bad.returncode == 1 and "is no package" in bad.stderr


@pytest.mark.needs("sweep")
def test_generate(makers, tmp_path, ocl_device):
    makers.generate(tmp_path, False)
    done = run(build("generate.cpp", tmp_path / "generate"), tmp_path / "generate.ocl", "OpenCL runs", 20)
    assert done.returncode == 0, done.stderr
    torch.manual_seed(0)
    gpt = makers.GPT().eval()
    with torch.no_grad():
        token, position = makers.Prefill(gpt)(torch.tensor([list(b"OpenCL runs")]))
        expected = [token.item()]
        for _ in range(19):
            token, position = makers.Decode(gpt)(token, position)
            expected.append(token.item())
    assert [int(t) for t in done.stdout.split()] == expected
