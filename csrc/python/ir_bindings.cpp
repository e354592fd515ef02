// csrc/python/ir_bindings.cpp: _C.ir, the IR in Python. Names and fields are as in csrc/ir/*.h.
#include <pybind11/operators.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "csrc/ir/builder.h"
#include "csrc/ir/facts.h"
#include "csrc/ir/parse.h"
#include "csrc/ir/simplify.h"
#include "csrc/ir/verify.h"
#include "csrc/kernels/kernels.h"
#include "csrc/python/fields.h"
#include "csrc/support/error.h"

namespace ocl::python {

void bind_attributes(py::module_& m);

namespace {

using namespace ocl::ir;

Symbol parse_symbol(const std::string& text) {
  const IndexExpr e = parse_index(text);
  if (e.op() != IndexOp::kSymbol) fail(ErrorKind::kConfig, "'" + text + "' is no symbol: s0, i0, r0 or v0");
  return e.symbol();
}

Scalar to_scalar(const py::handle& value) {
  if (py::isinstance<Scalar>(value)) return value.cast<Scalar>();
  if (py::isinstance<py::float_>(value)) return {true, value.cast<double>(), 0};
  return {false, 0, value.cast<int64_t>()};  // int and bool
}

py::object from_scalar(const Scalar& s) { return s.is_float ? py::object(py::float_(s.f)) : py::object(py::int_(s.i)); }

const char* kind_name(NodeKind kind) {
  static constexpr const char* kNames[] = {"map",       "reduce", "scan", "contract", "convolve",
                                           "attention", "fft",    "sort", "pack",     "call"};
  return kNames[static_cast<int>(kind)];
}

void bind_enums(py::module_& m) {
  py::enum_<DType>(m, "DType")
      OCL_VALUES(DType, kBool, kU8, kI8, kI16, kI32, kI64, kF16, kBF16, kF32, kF64, kF8E4M3, kF8E5M2, kF8E4M3Fnuz, kF8E5M2Fnuz);
  py::enum_<Value::Kind>(m, "ValueKind") OCL_VALUES(Value::Kind, kView, kConstant, kIndex);
  py::enum_<ConvolveKind>(m, "ConvolveKind") OCL_VALUES(ConvolveKind, kForward, kData, kWeight);
  py::enum_<AttentionKind>(m, "AttentionKind") OCL_VALUES(AttentionKind, kForward, kQuery, kKeyValue, kGradients);
  py::enum_<Level>(m, "Level") OCL_VALUES(Level, kGraph, kScheduled);
  py::enum_<StoreMode>(m, "StoreMode") OCL_VALUES(StoreMode, kWrite, kMaximum, kAdd);
  m.attr("LARGEST_FFT_PRIME") = kLargestFftPrime;
  m.def("chirp_length", &chirp_length);
  m.def("size_bytes", &size_bytes);
  m.def("is_floating", &is_floating);
  m.def("is_f8", &is_f8);
  m.def("compute_type", &compute_type);
}

void bind_ranges(py::module_& m) {
  py::class_<Range>(m, "Range") OCL_WRITE(Range, low, high, divisor)
      .def(py::init([](int64_t low, int64_t high, int64_t divisor) { return Range{low, high, divisor}; }),
           py::arg("low") = Range{}.low, py::arg("high") = Range{}.high, py::arg("divisor") = 1)
      .def("__repr__", [](const Range& r) {
        return "Range(" + std::to_string(r.low) + ", " + std::to_string(r.high) + ", " + std::to_string(r.divisor) + ")";
      });

  py::class_<Ranges>(m, "Ranges") OCL_CALL(Ranges, of, known_nonnegative, known_less, known_divides)
      .def(py::init<>())
      .def("set", [](Ranges& r, const std::string& symbol, const Range& range) { r.set(parse_symbol(symbol), range); })
      .def("set_extent",
           [](Ranges& r, const std::string& symbol, const IndexExpr& extent) { r.set_extent(parse_symbol(symbol), extent); });
  m.def("simplify", [](const IndexExpr& e, const Ranges& ranges) { return simplify(e, ranges); });
}

void bind_index(py::module_& m) {
  py::class_<IndexExpr> expr(m, "IndexExpr");
  py::implicitly_convertible<py::int_, IndexExpr>();
  expr.def(py::init<int64_t>(), py::arg("value") = 0)
      .def_static("size", &IndexExpr::size)
      .def_static("loop", &IndexExpr::loop)
      .def_static("reduce", &IndexExpr::reduce)
      .def_static("value", &IndexExpr::value)
      .def_static("parse", &parse_index)
      .def("is_const", py::overload_cast<>(&IndexExpr::is_const, py::const_))
      .def("is_const", py::overload_cast<int64_t>(&IndexExpr::is_const, py::const_))
      .def("constant", &IndexExpr::constant)
      .def("op",
           [](const IndexExpr& e) {
             static constexpr const char* kNames[] = {"const", "symbol", "add", "mul", "floordiv", "mod", "min", "max"};
             return kNames[static_cast<int>(e.op())];
           })
      .def("args", [](const IndexExpr& e) { return e.args(); })
      .def("uses", [](const IndexExpr& e, const std::string& symbol) { return e.uses(parse_symbol(symbol)); })
      .def(py::self + py::self)
      .def(py::self - py::self)
      .def(py::self * py::self)
      .def(
          "__floordiv__", [](const IndexExpr& a, const IndexExpr& b) { return floordiv(a, b); }, py::is_operator())
      .def(
          "__mod__", [](const IndexExpr& a, const IndexExpr& b) { return mod(a, b); }, py::is_operator())
      .def(
          "__radd__", [](const IndexExpr& a, const IndexExpr& b) { return b + a; }, py::is_operator())
      .def(
          "__rsub__", [](const IndexExpr& a, const IndexExpr& b) { return b - a; }, py::is_operator())
      .def(
          "__rmul__", [](const IndexExpr& a, const IndexExpr& b) { return b * a; }, py::is_operator())
      .def(
          "__rfloordiv__", [](const IndexExpr& a, const IndexExpr& b) { return floordiv(b, a); }, py::is_operator())
      .def(
          "__rmod__", [](const IndexExpr& a, const IndexExpr& b) { return mod(b, a); }, py::is_operator())
      .def("__neg__", [](const IndexExpr& a) { return a * -1; })
      .def(
          "__eq__", [](const IndexExpr& a, const IndexExpr& b) { return a == b; }, py::is_operator())
      .def("__hash__", [](const IndexExpr& a) { return static_cast<py::ssize_t>(a.hash()); })
      .def("__str__", &IndexExpr::str)
      .def("__repr__", &IndexExpr::str);

  m.def("floordiv", &floordiv);
  m.def("ceildiv", &ceildiv);
  m.def("mod", &mod);
  m.def("min", [](const IndexExpr& a, const IndexExpr& b) { return ir::min(a, b); });
  m.def("max", [](const IndexExpr& a, const IndexExpr& b) { return ir::max(a, b); });
  m.def("product", &product);
  m.def("evaluate", [](const IndexExpr& e, const std::map<std::string, int64_t>& values) {
    std::map<Symbol, int64_t> by_symbol;
    for (const auto& [text, value] : values) by_symbol.emplace(parse_symbol(text), value);
    return evaluate(e, [&](Symbol s) {
      const auto it = by_symbol.find(s);
      if (it == by_symbol.end())
        fail(ErrorKind::kInternal, "no value for " + IndexExpr::symbol(s.kind, s.index).str() + " in " + e.str());
      return it->second;
    });
  });
}

/// Returns an op as (name, dtype, operands, detail). The detail of a load is (buffer, coordinates), of a constant its number,
/// and of an index op its expression.
py::tuple op_tuple(const Op& op) {
  py::object detail = py::none();
  if (op.code == OpCode::kLoad) detail = py::make_tuple(op.buffer, op.index);
  if (op.code == OpCode::kConstant) detail = from_scalar(op.constant);
  if (op.code == OpCode::kIndex) detail = py::cast(op.index.at(0));
  return py::make_tuple(facts(op.code).name, op.dtype, op.args, detail);
}

void bind_graph(py::module_& m) {
  py::class_<Buffer>(m, "Buffer") OCL_READ(Buffer, dtype, sizes, strides, input, is_parameter, donated, name)
      .def_property_readonly("is_input", [](const Buffer& b) { return b.role == BufferRole::kInput; });
  py::class_<View>(m, "View") OCL_READ(View, buffer, sizes, coords);
  py::class_<Store>(m, "Store") OCL_READ(Store, buffer, index, value, mask, mode);
  py::class_<Output>(m, "Output") OCL_READ(Output, buffer, sizes, strides, offset);
  py::class_<Node>(m, "Node") OCL_READ(Node, origin, sizes, reduce_sizes, stores, reduced, reset, operands, outputs, convolve,
                                       attention, fft, sort, reduced_precision, call, waits_for, refused)
      .def_property_readonly("kind", [](const Node& n) { return kind_name(n.kind); })
      .def_property_readonly("ops",
                             [](const Node& n) {
                               py::list ops;
                               for (const Op& op : n.body.ops) ops.append(op_tuple(op));
                               return ops;
                             })
      .def_property_readonly("reduction",
                             [](const Node& n) { return is_reduction(n) ? facts(n.reduction).name : std::string(); })
      .def_property_readonly("stage", [](const Node& n) {
        static constexpr const char* kNames[] = {"whole", "partial", "final"};
        return kNames[static_cast<int>(n.stage)];
      });
  py::class_<Graph>(m, "Graph") OCL_READ(Graph, buffers, nodes, inputs, symbols, symbol_ranges, outputs)
      .def("without_donations",
           [](Graph g) {
             for (Buffer& buffer : g.buffers) buffer.donated = false;
             return g;
           })
      .def_static("parse", &parse_graph)
      .def("str", &Graph::str, py::arg("origins") = true)
      .def("__str__", [](const Graph& g) { return g.str(); })
      .def("simplify", [](Graph& g) { return simplify(g); })
      .def(
          "verify", [](const Graph& g, Level level) { verify(g, level); }, py::arg("level") = Level::kGraph)
      .def(py::pickle([](const Graph& g) { return g.str(); }, [](const std::string& text) { return parse_graph(text); }));
  m.def("parse_graph", &parse_graph);
}

/// Binds the rows of ops.def and reductions.def, without what only code generation reads.
void bind_tables(py::module_& m) {
#define OCL_VALUE(name) .value("k_" #name, Enum::k_##name)
  {
    using Enum = TypeRule;
    py::enum_<Enum>(m, "TypeRule") OCL_TYPE_RULES(OCL_VALUE);
  }
  {
    using Enum = OpError::Kind;
    py::enum_<Enum>(m, "OpErrorKind") OCL_VALUE(exact) OCL_VALUE(in_type) OCL_VALUE(rounded) OCL_VALUE(within)
        OCL_VALUE(recurrence);
  }
  {
    using Enum = ReductionKind;
    py::enum_<Enum>(m, "ReductionKind") OCL_REDUCTION_KINDS(OCL_VALUE);
  }
#undef OCL_VALUE
  py::class_<OpError>(m, "OpError") OCL_READ(OpError, kind, relative, absolute, of_operand);
  py::class_<OpFacts>(m, "OpFacts") OCL_READ(OpFacts, name, arity, rule, error, reference);
  m.def("ops", [] {
    std::vector<OpFacts> rows;
    for (int code = static_cast<int>(OpCode::kCast) + 1; code < static_cast<int>(OpCode::kCount); ++code)
      rows.push_back(facts(static_cast<OpCode>(code)));
    return rows;
  });
  m.def(
      "operand_dtypes",
      [](const std::string& op, const std::vector<DType>& dtypes) { return op_types(op_code(op), dtypes).operands; },
      py::arg("op"), py::arg("dtypes"));
  py::class_<ReductionFacts>(m, "ReductionFacts")
      OCL_READ(ReductionFacts, name, kind, identities, element, reference, result_accumulator);
  m.def("reductions", [] {
    std::vector<ReductionFacts> rows;
    for (int code = 0; code < static_cast<int>(ReductionCode::kCount); ++code)
      rows.push_back(facts(static_cast<ReductionCode>(code)));
    return rows;
  });
  m.def(
      "accumulator_dtype",
      [](const std::string& reduction, int accumulator, DType input) {
        return accumulator_dtype(reduction_code(reduction), accumulator, input);
      },
      py::arg("reduction"), py::arg("accumulator"), py::arg("input"));
}

void bind_value(py::module_& m) {
  py::class_<Value>(m, "Value") OCL_READ(Value, kind, dtype, sizes, buffer, coords, index)
      .def_property_readonly("constant", [](const Value& v) { return from_scalar(v.constant); })
      .def("__float__", [](const Value&) -> double {
        fail(ErrorKind::kUnsupported, "a number that varies from call to call must be a constant here");
      });
}

void bind_builder(py::module_& m) {
  py::class_<Builder>(m, "Builder") OCL_WRITE(Builder, origin, reduced_precision, reduced_convolutions)
      OCL_CALL(Builder, iota, reshape, permute, expand, slice, select, flip, squeeze, unsqueeze, diagonal, as_strided, cast,
               buffer, realize, copy, concat, interleave, contract, convolve, attention, fft, sort, copy_into, output, place,
               output_window, finish)
          .def(py::init<>())
          .def_readonly("graph", &Builder::graph)
          .def("size_symbol", &Builder::size_symbol)
          .def("input", &Builder::input, py::arg("dtype"), py::arg("sizes"), py::arg("strides"),
               py::arg("is_parameter") = false, py::arg("donated") = false)
          .def(
              "constant",
              [](const Builder& b, const py::object& value, DType dtype, Shape sizes) {
                return b.constant(to_scalar(value), dtype, std::move(sizes));
              },
              py::arg("value"), py::arg("dtype"), py::arg("sizes") = Shape{})
          .def("op", &Builder::op, py::arg("name"), py::arg("args"), py::arg("dtype") = py::none())
          .def("reduce", &Builder::reduce, py::arg("reduction"), py::arg("x"), py::arg("dims"), py::arg("keepdim"),
               py::arg("dtype") = py::none())
          .def("call", &Builder::call, py::arg("call"), py::arg("args"), py::arg("results"), py::arg("strides"),
               py::arg("waits_for") = kNone);

  py::class_<BodyBuilder>(m, "BodyBuilder") OCL_CALL(BodyBuilder, index, cast, op, dtype_of, as_index, store)
      .def(py::init<Builder&, Shape, Shape>(), py::arg("builder"), py::arg("sizes"), py::arg("reduce_sizes") = Shape{},
           py::keep_alive<1, 2>())
      .def("load", &BodyBuilder::load, py::arg("value"), py::arg("coords"), py::arg("mask") = kNone)
      .def("constant", [](BodyBuilder& b, const py::object& value, DType dtype) { return b.constant(to_scalar(value), dtype); })
      .def("add_store", &BodyBuilder::add_store, py::arg("target"), py::arg("coords"), py::arg("value"),
           py::arg("mask") = kNone, py::arg("mode") = StoreMode::kWrite)
      .def("end", &BodyBuilder::end)
      .def("scan", &BodyBuilder::scan, py::arg("reduction"), py::arg("values"), py::arg("dtype"), py::arg("reset") = kNone)
      .def("reduce", &BodyBuilder::reduce);
}

}  // namespace

void bind_ir(py::module_& m) {
  py::module_ ir = m.def_submodule("ir", "The IR: index expressions, graphs and their builder.");
  bind_enums(ir);
  bind_index(ir);
  bind_ranges(ir);
  bind_attributes(ir);
  bind_graph(ir);
  bind_tables(ir);
  bind_value(ir);
  bind_builder(ir);
}

}  // namespace ocl::python
