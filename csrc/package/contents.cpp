// csrc/package/contents.cpp: parses the texts of a package and checks that they fit together.
#include "csrc/package/contents.h"

#include <algorithm>
#include <cstdlib>
#include <exception>

#include "csrc/ir/parse.h"
#include "csrc/ir/verify.h"
#include "csrc/support/error.h"
#include "csrc/support/hash.h"

namespace ocl::package {
namespace {

constexpr int64_t kMostElements = int64_t{1} << 48;  // Of a tensor. It keeps sizes in bytes far from overflow.
constexpr size_t kMostDims = 64;

void expect(bool condition, const char* problem) {
  if (!condition) fail(ErrorKind::kConfig, problem);
}

/// Reads "3, s0, 2*s1". "" is the empty list.
ir::Shape parse_shape(const std::string& text) {
  ir::Shape shape;
  for (size_t at = 0; at < text.size();) {
    // Commas inside of min(a, b) are no separators.
    size_t end = at;
    for (int depth = 0; end < text.size() && (depth > 0 || text[end] != ','); ++end)
      depth += text[end] == '(' ? 1 : text[end] == ')' ? -1 : 0;
    shape.push_back(ir::parse_index(text.substr(at, end - at)));
    at = end + 1;
  }
  expect(shape.size() <= kMostDims, "a tensor has too many dimensions");
  return shape;
}

std::vector<int64_t> numbers(const ir::Shape& shape) {
  std::vector<int64_t> result;
  for (const ir::IndexExpr& e : shape) {
    expect(e.is_const() && e.constant() >= 0 && e.constant() <= kMostElements, "a size of a tensor is no valid number");
    result.push_back(e.constant());
  }
  return result;
}

Tensor tensor_of(const cache::StoredTensor& stored, cache::PackageFile& file) {
  Tensor t{stored.name,
           stored.storage,
           stored.first,
           ir::parse_dtype(stored.dtype),
           numbers(parse_shape(stored.sizes)),
           numbers(parse_shape(stored.strides)),
           stored.written};
  expect(t.sizes.size() == t.strides.size(), "a tensor has other dimensions in its sizes than in its strides");
  expect(t.first >= 0 && t.first <= kMostElements, "a tensor begins outside of its storage");
  expect((t.first + extent(t.sizes, t.strides)) * ir::size_bytes(t.dtype) <= file.storage_bytes(t.storage),
         "a tensor reaches beyond its storage");
  return t;
}

template <class Kind>
Kind kind_of(const std::string& word, const std::vector<std::pair<const char*, Kind>>& words) {
  for (const auto& [name, kind] : words)
    if (word == name) return kind;
  fail(ErrorKind::kConfig, "the word '" + word + "' is unknown");
}

/// Checks that an expression uses size symbols of the method only.
void check_symbols(const ir::IndexExpr& e, size_t count) {
  if (e.op() == ir::IndexOp::kSymbol)
    expect(e.symbol().kind == ir::SymbolKind::kSize && static_cast<size_t>(e.symbol().index) < count,
           "an expression uses an unknown symbol");
  for (const ir::IndexExpr& arg : e.args()) check_symbols(arg, count);
}

Method parse(const cache::StoredMethod& stored) {
  Method m;
  m.name = stored.name;
  m.structure = stored.structure;
  m.graph = ir::parse_graph(stored.graph);
  m.graph_key = hash_hex(stored.graph);
  ir::verify(m.graph, ir::Level::kGraph);
  for (const cache::StoredArgument& a : stored.arguments) {
    const bool is_tensor = a.kind == "tensor";
    expect(is_tensor || a.kind == "integer", "an argument is neither a tensor nor an integer");
    m.arguments.push_back({a.name, is_tensor, is_tensor ? ir::parse_dtype(a.dtype) : ir::DType::kI64, parse_shape(a.sizes)});
    expect(is_tensor || m.arguments.back().sizes.size() == 1, "an integer argument has no value");
  }
  for (const cache::StoredSymbol& s : stored.symbols)
    m.symbols.push_back({static_cast<int>(s.argument), static_cast<int>(s.dim)});
  for (const cache::StoredCondition& c : stored.conditions) m.conditions.push_back({ir::parse_index(c.expression), c.message});
  for (const cache::StoredInput& i : stored.inputs)
    m.inputs.push_back({kind_of<Input::Kind>(i.kind, {{"argument", Input::Kind::kArgument},
                                                      {"tensor", Input::Kind::kTensor},
                                                      {"random", Input::Kind::kRandomState}}),
                        i.number});
  for (const cache::StoredResult& r : stored.results) {
    Result& result = m.results.emplace_back();
    result.name = r.name;
    result.kind = kind_of<Result::Kind>(r.kind, {{"output", Result::Kind::kOutput},
                                                 {"argument", Result::Kind::kArgument},
                                                 {"tensor", Result::Kind::kTensor},
                                                 {"integer", Result::Kind::kInteger},
                                                 {"real", Result::Kind::kReal},
                                                 {"none", Result::Kind::kNone}});
    if (result.kind == Result::Kind::kInteger)
      result.integer = ir::parse_index(r.value);
    else if (result.kind == Result::Kind::kReal)
      result.real = std::strtod(r.value.c_str(), nullptr);
    else
      result.number = static_cast<int>(std::strtol(r.value.c_str(), nullptr, 10));
  }
  return m;
}

void check_input(const Method& m, size_t position, const std::vector<Tensor>& tensors) {
  const Input& input = m.inputs[position];
  const ir::Buffer& buffer = m.graph.buffers[m.graph.inputs[position]];
  expect(buffer.strides.has_value() && buffer.strides->size() == buffer.sizes.size(), "an input of the graph has no strides");
  if (input.kind == Input::Kind::kRandomState) {
    expect(buffer.dtype == ir::DType::kI64 && buffer.sizes == ir::Shape{ir::IndexExpr(2)} && input.number >= 0,
           "the random state is no tensor of two integers");
    return;
  }
  expect(input.number >= 0, "an input of the graph has a negative number");
  if (input.kind == Input::Kind::kArgument) {
    expect(input.number < static_cast<int64_t>(m.arguments.size()) && m.arguments[input.number].is_tensor,
           "an input of the graph is no argument of the method");
    const Argument& argument = m.arguments[input.number];
    expect(argument.dtype == buffer.dtype && argument.sizes == buffer.sizes, "an argument does not fit the graph");
    expect(ir::squeezed(*buffer.strides, buffer.sizes) == ir::squeezed(ir::contiguous_strides(buffer.sizes), buffer.sizes),
           "an argument of the graph is not dense");
    return;
  }
  expect(input.number < static_cast<int64_t>(tensors.size()), "an input of the graph is no tensor of the package");
  const Tensor& tensor = tensors[input.number];
  expect(tensor.dtype == buffer.dtype && tensor.sizes == numbers(buffer.sizes) && tensor.strides == numbers(*buffer.strides),
         "a tensor of the package does not fit the graph");
  expect(!tensor.written || !buffer.is_parameter, "a tensor that methods write is a constant of the graph");
}

void check(const Method& m, const std::vector<Tensor>& tensors) {
  const size_t symbols = m.symbols.size();
  expect(static_cast<int>(symbols) == m.graph.symbols, "the number of size symbols does not fit the graph");
  expect(m.inputs.size() == m.graph.inputs.size(), "the number of inputs does not fit the graph");
  for (const ir::Node& node : m.graph.nodes)
    expect(node.kind != ir::NodeKind::kCall, "the graph calls an op that needs PyTorch");
  for (const Argument& a : m.arguments)
    for (const ir::IndexExpr& size : a.sizes) check_symbols(size, symbols);
  for (const SymbolSource& s : m.symbols) {
    expect(s.argument >= 0 && s.argument < static_cast<int>(m.arguments.size()), "a size symbol has no argument");
    const Argument& a = m.arguments[s.argument];
    expect((s.dim >= 0) == a.is_tensor && s.dim < static_cast<int>(a.sizes.size()), "a size symbol has no dimension");
  }
  for (const Condition& c : m.conditions) check_symbols(c.expression, symbols);
  for (size_t i = 0; i < m.inputs.size(); ++i) check_input(m, i, tensors);
  for (const Result& r : m.results) {
    const size_t count = r.kind == Result::Kind::kOutput     ? m.graph.outputs.size()
                         : r.kind == Result::Kind::kArgument ? m.arguments.size()
                         : r.kind == Result::Kind::kTensor   ? tensors.size()
                                                             : 1;
    expect(r.number >= 0 && static_cast<size_t>(r.number) < count, "a result of the method does not exist");
    check_symbols(r.integer, symbols);
  }
}

}  // namespace

int64_t extent(const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides) {
  int64_t last = 0;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] == 0) return 0;
    if (sizes[d] > 1 && strides[d] > 0) {
      expect(sizes[d] - 1 <= kMostElements / strides[d], "a tensor is too large");
      last += (sizes[d] - 1) * strides[d];
      expect(last <= kMostElements, "a tensor is too large");
    }
  }
  return last + 1;
}

Contents read_contents(cache::PackageFile& file) {
  Contents contents;
  std::string where = "its tensors";
  try {
    for (const cache::StoredTensor& stored : file.tensors()) {
      expect(stored.id == static_cast<int64_t>(contents.tensors.size()), "a tensor is missing");
      contents.tensors.push_back(tensor_of(stored, file));
    }
    for (const cache::StoredMethod& stored : file.methods()) {
      where = "method " + stored.name;
      contents.methods.push_back(parse(stored));
      check(contents.methods.back(), contents.tensors);
    }
    where = "its methods";
    expect(!contents.methods.empty(), "there is no method");
  } catch (const std::exception& error) {
    fail(ErrorKind::kConfig, "the package " + file.path() + " cannot be used: " + where + ": " + error.what());
  }
  return contents;
}

}  // namespace ocl::package
