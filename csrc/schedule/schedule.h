// csrc/schedule/schedule.h: a graph with its launches: groups in launch order, layouts, lifetimes.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "csrc/kernels/caps.h"
#include "csrc/schedule/offer/names.h"
#include "csrc/schedule/offer/template.h"

namespace ocl::schedule {

enum class GroupKind : uint8_t {
  kLoops,     // Generated code: phases over one iteration space.
  kTemplate,  // A hand-written kernel with an epilogue of Map nodes over the elements of its output.
  // Several independent kLoops groups in one launch (optimizers, packing). Their strategy is kPointwise or kSequential.
  kBatch,
  kCall,  // An eager op.
};

/// How a kLoops group is executed.
enum class LoopStrategy : uint8_t {
  kPointwise,  // There is no reduction.
  // Each lane (vector lane or work-item) owns one outer element and loops over the reduction loops r*. Used for
  // pooling, and for sums of columns on CPUs.
  kSequential,
  kRow,  // r* is contiguous. One work-item (CPU) or one work-group (GPU) computes an outer element.
  // GPU: a work-group owns `columns` neighbouring outer elements. Its items stride over r*.
  kColumn,
};

/// A step of a kLoops group. An inner phase runs for every element of the reduction loops r*, an outer phase once for
/// each element of the outer loops i*. A group with reductions may begin with an outer phase.
///  inner phase  Map and Reduce nodes in order. Later nodes of the same phase, also Reduce nodes, can use a Map's value.
///               The value may also be stored, but later inner phases cannot load it.
///  outer phase  Map nodes over i*. All later phases can use their values and the results of reductions, which are
///               scalars of i*.
/// A group loads a buffer that one of its nodes stores only at the stored coordinates. So the load is the stored value
/// in a register, rounded to the buffer's dtype. The buffer's placement says whether the value is also stored to
/// memory. Each inner phase reads its inputs again; they are in the caches.
struct Phase {
  bool inner = false;
  std::vector<ir::NodeId> nodes;
};

/// A group that fusion could have joined with this one and did not.
struct Neighbour {
  enum class Relation : uint8_t {
    kProducer,  // It stores what this group reads.
    kConsumer,  // It reads what this group stores.
    kSibling,   // Both read the same buffer.
  };
  Relation relation = Relation::kProducer;
  ir::NodeId node = ir::kNone;      // A node of the neighbour.
  ir::BufferId buffer = ir::kNone;  // The buffer that both access.
  const char* reason = "";          // Why the two were not joined; a string literal.
};

struct Group {
  GroupKind kind = GroupKind::kLoops;
  /// The loops that all nodes of a kLoops group share, outermost first. The nodes' indices use these loops. node.sizes
  /// is equal to `sizes` for every node. node.reduce_sizes is equal to `reduce_sizes` for nodes of inner phases, also
  /// Maps.
  ir::Shape sizes, reduce_sizes;
  LoopStrategy strategy = LoopStrategy::kPointwise;
  std::vector<Phase> phases;         // kPointwise has one outer phase.
  int vector_width = 1;              // Elements of a vector along the innermost loop i*, or along r* for kRow.
  int ragged_width = 1;              // GPU: the same for rows that begin at any element.
  int crossed_loop = ir::kNone;      // kPointwise on a GPU: vectors run along this loop, and work-items along the innermost.
  int columns = 32;                  // Number of outer elements of a work-group for kColumn, a power of two.
  bool index32 = false;              // True if every element offset fits 31 bits.
  ir::NodeId main = ir::kNone;       // The contraction, convolution or attention of a kTemplate.
  TemplateLaunch launch;             // The launch of a kTemplate.
  std::vector<ir::NodeId> epilogue;  // Map nodes after the main node of a kTemplate, over its loops, in order.
  std::vector<Group> members;        // The groups of a kBatch.
  ir::NodeId call = ir::kNone;       // The node of a kCall.
  std::vector<std::string> reasons;  // Why nodes were fused, for explain.
  std::vector<Neighbour> apart;      // Groups that were not fused with this one. Each member of a batch has a list.
  /// All nodes of the group in program order.
  std::vector<ir::NodeId> nodes() const;
};

/// The lifetime of a buffer in the arena: the first and the last group, in launch order, that access it.
struct Lifetime {
  ir::BufferId buffer = ir::kNone;
  int first = 0, last = 0;
  ir::IndexExpr size_bytes;
};

/// Where a buffer lives.
struct Placement {
  enum class Kind : uint8_t {
    kNowhere,  // Only in registers of one group.
    kInput,    // In the caller's tensor `index`.
    kOutput,   // In a new tensor, allocation `index`.
    kArena,    // In the arena, at an offset from the memory plan.
    // In the memory of buffer `index`: a buffer whose lifetime ends, or a donated or mutated input.
    kAlias,
  };
  Kind kind = Kind::kNowhere;
  int index = ir::kNone;
};

struct Schedule {
  ir::Graph graph;                                      // The graph after the passes. Every buffer that exists has strides.
  std::map<ir::NodeId, TemplateLaunch> launches;        // The hand-written kernels that choose_template gave to nodes.
  std::vector<Group> groups;                            // The groups in launch order.
  std::vector<Placement> placements;                    // One per buffer.
  std::vector<Lifetime> lifetimes;                      // Lifetimes of buffers with placement kArena.
  std::vector<ir::BufferId> allocations;                // kOutput: the buffer that allocation i holds.
  std::vector<std::string> log;                         // Decisions with reasons, for explain.
  bool keeps_parameters = false;                        // Copy of Options::keeps_parameters.
  std::set<std::pair<std::string, std::string>> alone;  // Copy of Options::alone.
  std::map<std::pair<std::string, std::string>, int> most_items;  // Copy of Options::most_items.
};

/// True if the node must have a kernel of its own, because of Options::alone.
bool is_alone(const Schedule& schedule, ir::NodeId node);

/// Returns `caps` with the work-items that a kernel for the nodes may have, because of Options::most_items.
Caps with_granted_items(const Schedule& schedule, const std::vector<ir::NodeId>& nodes, Caps caps);

}  // namespace ocl::schedule
