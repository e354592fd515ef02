// csrc/codegen/kernel.cpp: arguments, names and the complete text of a kernel.
#include "csrc/codegen/kernel.h"

#include <algorithm>

#include "csrc/codegen/kernel_files.h"
#include "csrc/codegen/op_library.h"
#include "csrc/support/error.h"
#include "csrc/support/hash.h"

namespace ocl::codegen {

using schedule::Placement;

Kernel::Kernel(const schedule::Schedule& schedule, const Caps& caps, std::set<BufferId> written, bool index32,
               std::string prefix)
    : schedule_(schedule),
      dialect_(make_dialect(caps)),
      written_(std::move(written)),
      wide_(!index32),
      prefix_(std::move(prefix)) {}

const ir::Buffer& Kernel::buffer_of(BufferId id) const {
  const auto restrided = restrided_.find(id);
  return restrided == restrided_.end() ? graph().buffers[id] : restrided->second;
}

std::string Kernel::buffer(BufferId id) {
  for (size_t i = 0; i < buffers_.size(); ++i)
    if (buffers_[i].buffer == id) return buffer_names_[i];
  OCL_ASSERT(schedule_.placements.at(static_cast<size_t>(id)).kind != Placement::Kind::kNowhere,
             "a kernel needs buffer " + graph().buffers[id].name + " in memory, and it has none");
  const bool written = written_.count(id) > 0;
  buffers_.push_back({id, start_of(id), written});
  buffer_names_.push_back(prefix_ + fresh(written ? "out" : "in"));
  return buffer_names_.back();
}

std::string Kernel::size(int index) {
  const ir::IndexExpr symbol = ir::IndexExpr::size(index);
  for (size_t i = 0; i < ints_.size(); ++i)
    if (ints_[i].value == symbol && int_names_[i].starts_with(prefix_ + "s")) return int_names_[i];
  ints_.push_back({symbol, wide_});
  int_names_.push_back(prefix_ + fresh("s"));
  return int_names_.back();
}

std::string Kernel::integer(const std::string& name, const ir::IndexExpr& value) {
  ints_.push_back({value, wide_});
  int_names_.push_back(name);
  return name;
}

std::string Kernel::shared_integer(const char* prefix, const ir::IndexExpr& value) {
  for (size_t i = 0; i < ints_.size(); ++i)
    if (ints_[i].value == value && int_names_[i].starts_with(prefix_ + prefix)) return int_names_[i];
  return integer(prefix_ + fresh(prefix), value);
}

std::string Kernel::fresh(const char* prefix) { return prefix + std::to_string(counts_[prefix]++); }

std::string Kernel::local_array(Type type, int slot, int elements) {
  const std::string name = "shared_" + type_suffix(type) + "_" + std::to_string(slot);
  LocalArray& array = locals_.emplace(name, LocalArray{type, elements}).first->second;
  array.elements = std::max(array.elements, elements);
  return name;
}

std::vector<std::string> Kernel::parameters(bool alone) const {
  std::vector<std::string> result;
  for (size_t i = 0; i < buffers_.size(); ++i)
    result.push_back(
        pointer_parameter(buffer_names_[i], graph().buffers[buffers_[i].buffer].dtype, buffers_[i].written, alone));
  for (size_t i = 0; i < ints_.size(); ++i)
    result.push_back(std::string("const ") + (ints_[i].wide ? "long " : "int ") + int_names_[i]);
  return result;
}

std::vector<std::string> Kernel::argument_names() const {
  std::vector<std::string> result;
  for (const std::string& name : buffer_names_) {
    result.push_back(name);
    result.push_back(name + "_offset");
  }
  result.insert(result.end(), int_names_.begin(), int_names_.end());
  return result;
}

void Kernel::take_local_arrays(const Kernel& function) {
  for (const auto& [name, array] : function.locals_) {
    int& elements = locals_.emplace(name, array).first->second.elements;
    elements = std::max(elements, array.elements);
  }
}

std::vector<std::string> Kernel::local_names() const {
  std::vector<std::string> result;
  for (const auto& [name, array] : locals_) result.push_back(name);
  return result;
}

std::vector<std::string> Kernel::local_parameters() const {
  std::vector<std::string> result;
  for (const auto& [name, array] : locals_) result.push_back(format("__local $t* $s", {array.type, name}));
  return result;
}

void Kernel::write_offsets(Writer& writer) const {
  for (const std::string& name : buffer_names_) writer.line("$s += $s_offset;", name, name);
}

std::string Kernel::all_offsets() const {
  std::string offsets;
  for (const std::string& name : buffer_names_) offsets += (offsets.empty() ? "" : " | ") + name + "_offset";
  return offsets;
}

KernelSource Kernel::finish(const std::string& kind, const std::string& functions, const Writer& body,
                            std::array<ir::IndexExpr, 3> groups, std::array<size_t, 3> local, bool add_offsets) const {
  Writer kernel;
  kernel.line("__kernel __attribute__((reqd_work_group_size($d, $d, $d)))", local[0], local[1], local[2]);
  if (dialect_.thread_items > 0 && kind != "pointwise" && kind != "batch")
    kernel.line("__attribute__((intel_reqd_sub_group_size($d)))", dialect_.thread_items);
  std::string parameters;
  for (const std::string& parameter : this->parameters()) parameters += (parameters.empty() ? "" : ",\n    ") + parameter;
  kernel.open("void $s(\n    $s)", kPlaceholder, parameters);
  for (const auto& [name, array] : locals_) kernel.line("__local $t $s[$d];", array.type, name, array.elements);
  if (add_offsets) write_offsets(kernel);
  kernel.append(body);
  kernel.close();

  KernelSource source;
  source.kind = kind;
  source.buffers = buffers_;
  source.ints = ints_;
  for (size_t i = 0; i < source.buffers.size(); ++i) source.buffers[i].slot = static_cast<int>(2 * i);
  for (size_t i = 0; i < source.ints.size(); ++i) source.ints[i].slot = static_cast<int>(2 * source.buffers.size() + i);
  source.groups = groups;
  source.local = local;
  name_and_assemble(dialect_, source, kind, functions + kernel.str());
  return source;
}

namespace {

// PyTorch rounds after each op, so the compiler must not turn a * b + c into an fma.
constexpr char kContract[] = "#pragma OPENCL FP_CONTRACT OFF\n";
constexpr char kDouble[] = "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n";
constexpr char kUnroll[] =
    "#ifdef __clang__\n#define OCL_UNROLL __attribute__((opencl_unroll_hint))\n#else\n#define OCL_UNROLL\n#endif\n";

bool has(const std::string& text, const char* word) { return text.find(word) != std::string::npos; }

/// Returns replacements for vector loads and stores, for compilers whose own ones are slow, or wrong for halves.
std::string memory_functions(const Dialect& dialect, const std::string& text) {
  if (dialect.converts_halves) return "";
  const bool halves = has(text, "_half") || has(text, "IN_HALF");
  const bool vectors = halves || has(text, "vload") || has(text, "vstore") || has(text, "STOREV");
  return (vectors ? kernel_file("base/vectors") + std::string("\n") : "") +
         (halves ? kernel_file("base/halves") + std::string("\n") : "");
}

void name(KernelSource& source, const std::string& kind, std::string program) {
  source.name = kind + "_" + hash_hex(program).substr(0, 12);
  for (size_t at = program.find(kPlaceholder); at != std::string::npos; at = program.find(kPlaceholder, at))
    program.replace(at, std::string(kPlaceholder).size(), source.name);
  source.text = std::move(program);
}

}  // namespace

void name_and_assemble(const Dialect& dialect, KernelSource& source, const std::string& kind, const std::string& text) {
  std::string functions = called_functions(text, dialect);
  if (has(text, "nibble_product")) functions += kernel_file("tensor_core/nibbles") + std::string("\n");
  std::string prelude = kContract + memory_functions(dialect, functions + text);
  if (has(functions + text, "double")) prelude += kDouble;
  if (has(text, "OCL_UNROLL")) prelude += kUnroll;
  if (!functions.empty()) prelude += "#define OCL_INLINE static inline\n\n" + functions;
  name(source, kind, prelude + "//@kernel\n" + text);  // Kernels with equal preludes are built together.
}

void name_template(const Dialect& dialect, KernelSource& source, const std::string& defines, const std::string& epilogue,
                   const std::string& file) {
  const std::string functions = called_functions(epilogue + file, dialect);
  std::string text = kContract + memory_functions(dialect, defines + functions + epilogue);
  if (has(functions + epilogue, "double")) text += kDouble;
  name(source, source.kind, text + defines + kernel_file("base/types") + "\n" + functions + epilogue + "\n" + file);
}

std::set<BufferId> stored_buffers(const schedule::Schedule& schedule, const std::vector<ir::NodeId>& nodes) {
  std::set<BufferId> result;
  for (const ir::NodeId node : nodes)
    for (const BufferId buffer : ir::writes(schedule.graph.nodes[node]))
      if (schedule.placements[buffer].kind != Placement::Kind::kNowhere) result.insert(buffer);
  return result;
}

}  // namespace ocl::codegen
