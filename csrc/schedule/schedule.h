// csrc/schedule/schedule.h: a graph with its launches: fused groups in launch order, layouts, lifetimes.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "csrc/ir/graph.h"
#include "csrc/schedule/template.h"
#include "csrc/schedule/tunable.h"
#include "csrc/support/caps.h"

namespace ocl::schedule {

enum class GroupKind : uint8_t {
  kLoops,     // generated: phases over one iteration space
  kTemplate,  // hand-written kernel with an epilogue of Map nodes over the output's elements
  kBatch,     // several independent kLoops groups in one launch, kPointwise and kSequential ("foreach": optimizers, packing)
  kCall,      // an eager op
};

/// How a kLoops group with reductions runs.
enum class LoopStrategy : uint8_t {
  kPointwise,   // no reduction
  kSequential,  // each lane (vector lane or work-item) owns one outer element and loops over r* (pooling, columns)
  kRow,         // r* are contiguous: one item (CPU) or one work-group (GPU) per outer element
  kColumn,      // GPU: a work-group owns `columns` neighbouring outer elements, its rows of items stride over r*
};

/// A step of a kLoops group. Inner phases run for every (i*, r*), outer phases once per i*. A group with reductions may begin
/// with an outer phase.
///   inner phase  Map and Reduce nodes in order. A Map's value serves later nodes of the same phase, Reduce nodes included. It
///                may also be stored. Later inner phases cannot load it.
///   outer phase  Map nodes over i*. Their values, like the results of reductions, are scalars of i* for all later phases.
/// Within a group, a buffer that one of its nodes stores is loaded at the stored coordinates only. So the load is the stored
/// value in a register, rounded to the buffer's dtype. The buffer's placement says whether it is stored to memory as well.
/// Each inner phase reads its inputs again; they are in cache.
struct Phase {
  bool inner = false;
  std::vector<ir::NodeId> nodes;
};

/// A group that fusion could have joined with this one and did not.
struct Neighbour {
  enum class Relation : uint8_t {
    kProducer,  // it stores what this group reads
    kConsumer,  // it reads what this group stores
    kSibling,   // both read the same buffer
  };
  Relation relation = Relation::kProducer;
  ir::NodeId node = ir::kNone;      // a node of the neighbour
  ir::BufferId buffer = ir::kNone;  // what both touch
  const char* reason = "";          // why the two are apart; a literal
};

struct Group {
  GroupKind kind = GroupKind::kLoops;
  /// kLoops: the loops that all nodes share, outermost first. The nodes' indices use these loops: node.sizes = sizes for every
  /// node, and node.reduce_sizes = reduce_sizes for nodes of inner phases, Maps included.
  ir::Shape sizes, reduce_sizes;
  LoopStrategy strategy = LoopStrategy::kPointwise;
  std::vector<Phase> phases;         // kPointwise: one outer phase
  int vector_width = 1;              // elements per vector step along the innermost loop (or along r for kRow)
  int columns = 32;                  // kColumn: a power of two
  bool index32 = false;              // every element offset fits 31 bits
  ir::NodeId main = ir::kNone;       // kTemplate: the contraction or convolution
  TemplateLaunch launch;             // kTemplate
  std::vector<ir::NodeId> epilogue;  // kTemplate: Map nodes over the main node's loops, in order
  std::vector<Group> members;        // kBatch
  ir::NodeId call = ir::kNone;       // kCall
  std::vector<std::string> reasons;  // why nodes were fused, for explain
  std::vector<Neighbour> apart;      // why no more were, for explain; the members of a batch have their own
  /// All nodes of the group in program order.
  std::vector<ir::NodeId> nodes() const;
};

/// First and last group (positions in launch order) that touch a buffer held in the arena.
struct Lifetime {
  ir::BufferId buffer = ir::kNone;
  int first = 0, last = 0;
  ir::IndexExpr size_bytes;
};

/// Where a buffer lives.
struct Placement {
  enum class Kind : uint8_t {
    kNowhere,  // only in registers of one group
    kInput,    // the caller's tensor `index`
    kOutput,   // a fresh tensor, allocation `index`
    kArena,    // the arena; offset by the memory plan
    kAlias,    // shares the memory of buffer `index` (in-place reuse of a dying buffer or of a donated or mutated input)
  };
  Kind kind = Kind::kNowhere;
  int index = ir::kNone;
};

struct Schedule {
  ir::Graph graph;                                // after the passes; every buffer that exists has strides
  std::map<ir::NodeId, TemplateLaunch> launches;  // hand-written kernels that choose_template gave to nodes
  std::vector<Group> groups;                      // in launch order
  std::vector<Placement> placements;              // per buffer
  std::vector<Lifetime> lifetimes;                // lifetimes of kArena buffers
  std::vector<ir::BufferId> allocations;          // kOutput: which buffer allocation i holds
  std::vector<std::string> log;                   // decisions with reasons, for explain
  bool keeps_parameters = false;                  // Options::keeps_parameters
  const Measured* measured = nullptr;             // while the passes run: Options::measured
  std::vector<Tunable>* tunables = nullptr;       // while the passes run: Options::tunables
};

/// Bytes that a group reads and writes and the floating-point operations it does; symbolic.
struct Work {
  ir::IndexExpr bytes, flops;
};
Work work_of(const Schedule& schedule, const Group& group);

/// Text of the schedule: groups, phases, placements.
std::string str(const Schedule& schedule);

}  // namespace ocl::schedule
