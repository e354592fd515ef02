// csrc/codegen/kernel.h: the kernel under construction: arguments numbered by first use, fresh names, and the finished text.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "csrc/codegen/dialect.h"
#include "csrc/codegen/kernel_source.h"
#include "csrc/codegen/writer.h"

namespace ocl::codegen {

/// Names come from the order of first use alone, so that equal groups give equal text.
class Kernel {
 public:
  /// `written`: the buffers that the group stores to; their arguments are not const.
  /// `prefix` of the arguments' names, where they meet names of other code.
  Kernel(const schedule::Schedule& schedule, const Caps& caps, std::set<ir::BufferId> written, bool index32,
         std::string prefix = "");

  const schedule::Schedule& schedule() const { return schedule_; }
  const ir::Graph& graph() const { return schedule_.graph; }
  const Dialect& dialect() const { return dialect_; }
  bool wide() const { return wide_; }
  const char* index_type() const { return wide_ ? "long" : "int"; }

  /// Argument of a buffer: "in0", "out1". Throws InternalError if it has no memory.
  std::string buffer(ir::BufferId id);
  /// Whether the kernel stores to it.
  bool writes(ir::BufferId id) const { return written_.count(id) > 0; }
  /// Argument of size symbol s<index>: "s0".
  std::string size(int index);
  /// Argument `name`: an integer whose `value` is computed on the host.
  std::string integer(const std::string& name, const ir::IndexExpr& value);
  /// The same, numbered, and shared by equal values.
  std::string shared_integer(const char* prefix, const ir::IndexExpr& value);
  std::string fresh(const char* prefix);  // "v0", "v1", ...; one count per prefix
  /// A __local array of `elements`; arrays of one type are numbered by `slot` and reused by later phases.
  std::string local_array(Type type, int slot, int elements);
  /// Bytes of all local arrays.
  int64_t local_bytes() const { return local_bytes_; }

  /// Parameters in order: buffers, then ints.
  std::vector<std::string> parameters(bool alone = false) const;
  std::vector<std::string> argument_names() const;
  /// "in0 += in0_offset;" for every buffer.
  void write_offsets(Writer& writer) const;
  /// The offsets of all buffers combined by "|": a multiple of a power of two if all of them are.
  std::string all_offsets() const;
  const std::vector<std::string>& buffer_names() const { return buffer_names_; }
  const std::vector<std::string>& int_names() const { return int_names_; }
  const std::vector<BufferArg>& buffers() const { return buffers_; }
  const std::vector<IntArg>& ints() const { return ints_; }

  /// Complete program around the kernel's body; `functions` go in front of it. `add_offsets`: the body's pointers include them.
  KernelSource finish(const std::string& kind, const std::string& functions, const Writer& body,
                      std::array<ir::IndexExpr, 3> groups, std::array<size_t, 3> local, bool add_offsets = true) const;

 private:
  const schedule::Schedule& schedule_;
  Dialect dialect_;
  std::set<ir::BufferId> written_;
  bool wide_;
  std::string prefix_;
  std::vector<BufferArg> buffers_;
  std::vector<IntArg> ints_;
  std::vector<std::string> buffer_names_, int_names_;
  std::map<std::string, int> counts_;
  std::map<std::string, std::string> locals_;  // name -> declaration
  int64_t local_bytes_ = 0;
};

/// The program of `text` (functions and kernel, with kPlaceholder for the kernel's name): prelude, marker, name from the hash.
constexpr const char* kPlaceholder = "KERNEL_PLACEHOLDER";
void name_and_assemble(const Dialect& dialect, KernelSource& source, const std::string& kind, const std::string& text);
/// The same for a hand-written kernel, whose text is `defines` (which name the kernel kPlaceholder), base/types.cl, library
/// functions, `epilogue` and `file`.
void name_template(const Dialect& dialect, KernelSource& source, const std::string& defines, const std::string& epilogue,
                   const std::string& file);

/// Buffers that the nodes store to and that have memory.
std::set<ir::BufferId> stored_buffers(const schedule::Schedule& schedule, const std::vector<ir::NodeId>& nodes);

}  // namespace ocl::codegen
