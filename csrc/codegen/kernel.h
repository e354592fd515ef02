// csrc/codegen/kernel.h: a kernel under construction: its arguments, numbered by first use, new variable names, and the
// finished text.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "csrc/codegen/dialect.h"
#include "csrc/codegen/kernel_source.h"
#include "csrc/codegen/writer.h"
#include "csrc/schedule/schedule.h"

namespace ocl::codegen {

/// Names depend only on the order of first use, so equal groups give equal text.
class Kernel {
 public:
  /// written: the buffers that the group stores to; their pointers are not const. prefix: put in front of the names of
  /// arguments, if the text is combined with other code.
  Kernel(const schedule::Schedule& schedule, const Caps& caps, std::set<ir::BufferId> written, bool index32,
         std::string prefix = "");

  const schedule::Schedule& schedule() const { return schedule_; }
  const ir::Graph& graph() const { return schedule_.graph; }
  /// Returns a buffer with its strides: the graph's, or those that use_strides() replaced.
  const ir::Buffer& buffer_of(ir::BufferId id) const;
  /// Uses these buffers in place of the graph's.
  void use_strides(std::map<ir::BufferId, ir::Buffer> buffers) { restrided_ = std::move(buffers); }
  /// Lets the argument of a buffer begin at this element, before buffer() is called for it. Offsets in the text count from
  /// there.
  void begin_at(ir::BufferId id, int64_t element) { starts_[id] = element; }
  int64_t start_of(ir::BufferId id) const { return starts_.contains(id) ? starts_.at(id) : 0; }
  const Dialect& dialect() const { return dialect_; }
  bool wide() const { return wide_; }
  const char* index_type() const { return wide_ ? "long" : "int"; }

  /// Returns the argument of a buffer: "in0", "out1". InternalError if the buffer has no memory.
  std::string buffer(ir::BufferId id);
  /// True if the kernel stores to the buffer.
  bool writes(ir::BufferId id) const { return written_.count(id) > 0; }
  /// Returns the argument of size symbol s<index>: "s0".
  std::string size(int index);
  /// Adds argument `name`, an integer whose value is computed on the host.
  std::string integer(const std::string& name, const ir::IndexExpr& value);
  /// Adds an integer argument with a numbered name. Equal values share an argument.
  std::string shared_integer(const char* prefix, const ir::IndexExpr& value);
  std::string fresh(const char* prefix);  // Returns a new name: "v0", "v1", ... Each prefix has its own count.
  /// Returns a __local array with `elements` elements. Arrays of one type are numbered by `slot`; later phases reuse
  /// them.
  std::string local_array(Type type, int slot, int elements);
  /// Declares the __local arrays of a function that this kernel calls, and passes them to it. Functions share arrays.
  void take_local_arrays(const Kernel& function);
  std::vector<std::string> local_names() const;
  /// Returns the parameters with which a function gets the arrays: "__local float* shared_f32_0".
  std::vector<std::string> local_parameters() const;

  /// Returns all parameters in order: the buffers, then the integers. alone: see pointer_parameter.
  std::vector<std::string> parameters(bool alone = false) const;
  std::vector<std::string> argument_names() const;
  /// Prints "in0 += in0_offset;" for every buffer.
  void write_offsets(Writer& writer) const;
  /// Returns the offsets of all buffers combined by "|". The result is a multiple of a power of two only if all offsets
  /// are.
  std::string all_offsets() const;
  const std::vector<std::string>& buffer_names() const { return buffer_names_; }
  const std::vector<std::string>& int_names() const { return int_names_; }
  const std::vector<BufferArg>& buffers() const { return buffers_; }
  const std::vector<IntArg>& ints() const { return ints_; }

  /// Returns the complete program with `body` as the kernel's body, after `functions`. `add_offsets`: adds the offsets
  /// to the pointers first.
  KernelSource finish(const std::string& kind, const std::string& functions, const Writer& body,
                      std::array<ir::IndexExpr, 3> groups, std::array<size_t, 3> local, bool add_offsets = true) const;

 private:
  const schedule::Schedule& schedule_;
  std::map<ir::BufferId, ir::Buffer> restrided_;
  std::map<ir::BufferId, int64_t> starts_;
  Dialect dialect_;
  std::set<ir::BufferId> written_;
  bool wide_;
  std::string prefix_;
  std::vector<BufferArg> buffers_;
  std::vector<IntArg> ints_;
  std::vector<std::string> buffer_names_, int_names_;
  std::map<std::string, int> counts_;
  struct LocalArray {
    Type type;
    int elements;  // The most that any use needs.
  };
  std::map<std::string, LocalArray> locals_;
};

/// Assembles the program: prelude, marker, then `text` (functions and kernel). The name of the kernel, a hash of the
/// program, replaces kPlaceholder.
constexpr const char* kPlaceholder = "KERNEL_PLACEHOLDER";
void name_and_assemble(const Dialect& dialect, KernelSource& source, const std::string& kind, const std::string& text);
/// Assembles the program of a hand-written kernel: `defines` (which use kPlaceholder as the kernel's name),
/// base/types.cl, library functions, `epilogue`, `file`.
void name_template(const Dialect& dialect, KernelSource& source, const std::string& defines, const std::string& epilogue,
                   const std::string& file);

/// Returns the buffers that the nodes store to, if they have memory.
std::set<ir::BufferId> stored_buffers(const schedule::Schedule& schedule, const std::vector<ir::NodeId>& nodes);

}  // namespace ocl::codegen
