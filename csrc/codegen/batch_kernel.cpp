// csrc/codegen/batch_kernel.cpp: several independent groups in one launch. They are pointwise groups, and reductions of rows or
// such that each lane computes on its own. Members with equal text share a function. On CPUs, members share one also if their
// texts differ in sizes: a batch that packs the weights of a network has 50 members of three kinds, and a compiler takes
// seconds for 50 functions. A work-group finds its member by its index, selects the pointers and sizes of that member, and
// calls the function.
//
//   static inline void adam_3f9c1e_0(__global float* out0, ..., const int count, const int group) { ... }
//   __kernel void adam_3f9c1e(...) {
//     const int at = get_group_id(0);
//     if (at < end1) {  // A binary search for the member.
//       if (at < end0) { in0 = ...; count = ...; first = 0; }
//       else { in0 = ...; count = ...; first = end0; }
//     }
//     else { ... }
//     adam_3f9c1e_0(in0, ..., count, at - first);
//   }
#include "csrc/codegen/batch_kernel.h"

#include <algorithm>
#include <memory>

#include "csrc/codegen/pointwise.h"
#include "csrc/codegen/reduction.h"
#include "csrc/codegen/shared_function.h"
#include "csrc/support/error.h"

namespace ocl::codegen {

using schedule::Group;
using schedule::LoopStrategy;

namespace {

struct Member {
  std::unique_ptr<Nest> nest;
  IndexExpr groups;  // Number of work-groups.
  std::string parameters, body;
};

Member print_member(const schedule::Schedule& schedule, const Group& group, const Caps& caps, const IndexExpr& elements) {
  OCL_ASSERT(group.strategy != LoopStrategy::kColumn, "a batch has no reductions of columns");
  Member member;
  member.nest = std::make_unique<Nest>(schedule, group, caps);
  member.nest->batch_elements = elements;
  const bool rows = group.strategy == LoopStrategy::kRow;
  std::array<size_t, 3> local{};
  Grid grid;
  if (caps.is_cpu)
    grid = rows ? write_rows_cpu(*member.nest) : write_elements_cpu(*member.nest);
  else
    grid = rows ? write_rows_gpu(*member.nest, &local) : write_elements_gpu(*member.nest);
  member.groups = ir::simplify(grid[0] * grid[1], member.nest->ranges);
  Writer offsets;
  member.nest->kernel.write_offsets(offsets);
  for (const auto& list : {member.nest->kernel.parameters(), member.nest->kernel.local_parameters()})
    for (const std::string& parameter : list) member.parameters += parameter + ", ";
  member.body = "const int group) {\n" + offsets.str(1) + member.nest->body.writer().str(1) + "}\n";
  return member;
}

/// Returns "__global const float* in0" for "__global const float* in0, const ulong in0_offset".
std::string pointer_variable(const std::string& parameter) { return parameter.substr(0, parameter.find(',')); }

/// Returns the functions of the members, each with its parameters and its body.
std::vector<SharedFunction> functions_of(const std::vector<Member>& members, const Caps& caps) {
  std::vector<std::string> texts;
  for (const Member& member : members) texts.push_back(member.parameters + '\0' + member.body);
  std::vector<SharedFunction> functions;
  if (caps.is_cpu) functions = share_functions(texts);
  // On GPUs, each element computes its index, and divisions by constants are cheaper.
  for (size_t t = 0; t < texts.size() && !caps.is_cpu; ++t) {
    const auto found = std::ranges::find(functions, texts[t], &SharedFunction::text);
    if (found == functions.end())
      functions.push_back({{t}, texts[t], {}});
    else
      found->users.push_back(t);
  }
  for (SharedFunction& function : functions) {
    std::string integers;
    for (size_t n = 0; n < function.values.size(); ++n) integers += "const int " + SharedFunction::parameter(n) + ", ";
    function.text.replace(function.text.find('\0'), 1, integers);
  }
  return functions;
}

class BatchPrinter {
 public:
  BatchPrinter(const schedule::Schedule& schedule, const Group& group, const Caps& caps, std::vector<Member>& members)
      : kernel_(schedule, caps, stored_buffers(schedule, group.nodes()), index32(group), "m_"), members_(members) {}

  KernelSource print(const Group& group, const Caps& caps) {
    // Members that share a function follow one another.
    const std::vector<SharedFunction> functions = functions_of(members_, caps);

    Writer body;
    body.line("const int at = get_group_id(0);");
    std::string text;
    size_t left = members_.size();
    for (size_t f = 0; f < functions.size(); ++f) {
      const std::string name = std::string(kPlaceholder) + "_" + std::to_string(f);
      text += "static inline void " + name + "(" + functions[f].text + "\n";
      const size_t last = left - functions[f].users.size();  // Number of members after those of this function.
      if (last > 0)
        body.open("if (at < $s)", end_of(functions, f));
      else if (functions.size() > 1)
        body.open("");
      print_function(body, name, functions[f]);
      if (last > 0) body.line("return;");
      if (functions.size() > 1) body.close();
      left = last;
    }

    const ir::Ranges ranges = kernel_.graph().ranges();
    const std::array<size_t, 3> local{static_cast<size_t>(kernel_.dialect().items), 1, 1};
    return kernel_.finish("batch", text, body, {ir::simplify(total_, ranges), 1, 1}, local, false);
  }

 private:
  static bool index32(const Group& group) {
    return std::all_of(group.members.begin(), group.members.end(), [](const Group& m) { return m.index32; });
  }

  /// Returns the argument that holds the index of the first work-group after the members of function f.
  std::string end_of(const std::vector<SharedFunction>& functions, size_t f) {
    IndexExpr end = 0;
    for (size_t g = 0; g <= f; ++g)
      for (const size_t m : functions[g].users) end = end + members_[m].groups;
    return kernel_.shared_integer("end", end);
  }

  std::string outer_int(const IntArg& arg, const std::string& name) {
    if (arg.value.op() == ir::IndexOp::kSymbol) return kernel_.size(arg.value.symbol().index);
    return kernel_.shared_integer((name.substr(0, name.find_last_not_of("0123456789") + 1) + "_").c_str(), arg.value);
  }

  /// Prints the assignments of the members from..to-1 as a binary search, so that a work-group makes few comparisons.
  void print_choice(Writer& w, const SharedFunction& function, const std::vector<IndexExpr>& begins, size_t from, size_t to) {
    if (to - from > 1) {
      const size_t middle = from + (to - from) / 2;
      w.open("if (at < $s)", kernel_.shared_integer("end", begins[middle]));
      print_choice(w, function, begins, from, middle);
      w.close();
      w.open("else");
      print_choice(w, function, begins, middle, to);
      w.close();
      return;
    }
    const Kernel &first = members_[function.users[0]].nest->kernel, &own = members_[function.users[from]].nest->kernel;
    for (size_t p = 0; p < own.buffers().size(); ++p) {
      const std::string argument = kernel_.buffer(own.buffers()[p].buffer), &variable = first.buffer_names()[p];
      w.line("$s = $s; $s_offset = $s_offset;", variable, argument, variable, argument);
    }
    for (size_t k = 0; k < own.ints().size(); ++k)
      w.line("$s = $s;", first.int_names()[k], outer_int(own.ints()[k], own.int_names()[k]));
    for (size_t n = 0; n < function.values.size(); ++n)
      w.line("$s = $d;", SharedFunction::parameter(n), function.values[n][from]);
    w.line("first = $s;", begins[from].is_const(0) ? "0" : kernel_.shared_integer("end", begins[from]));
  }

  void print_function(Writer& w, const std::string& name, const SharedFunction& function) {
    const std::vector<size_t>& users = function.users;
    const Kernel& first = members_[users[0]].nest->kernel;
    const std::vector<std::string> parameters = first.parameters();
    const size_t pointers = first.buffers().size();
    const bool choose = users.size() > 1;
    kernel_.take_local_arrays(first);
    if (choose) {
      for (size_t p = 0; p < pointers; ++p)
        w.line("$s; ulong $s_offset;", pointer_variable(parameters[p]), first.buffer_names()[p]);
      for (const std::string& variable : first.int_names()) w.line("$s $s;", kernel_.index_type(), variable);
      for (size_t n = 0; n < function.values.size(); ++n) w.line("int $s;", SharedFunction::parameter(n));
      w.line("int first;");
    }
    std::vector<IndexExpr> begins;
    for (const size_t user : users) {
      begins.push_back(total_);
      total_ = total_ + members_[user].groups;
    }
    std::string call;
    if (choose) {
      print_choice(w, function, begins, 0, users.size());
      for (const std::string& variable : first.buffer_names()) call += variable + ", " + variable + "_offset, ";
      for (const auto& list : {first.int_names(), first.local_names()})
        for (const std::string& variable : list) call += variable + ", ";
      for (size_t n = 0; n < function.values.size(); ++n) call += SharedFunction::parameter(n) + ", ";
      call += "at - first";
    } else {
      for (const auto& buffer : first.buffers()) {
        const std::string argument = kernel_.buffer(buffer.buffer);
        call += argument + ", " + argument + "_offset, ";
      }
      for (size_t k = 0; k < first.ints().size(); ++k) call += outer_int(first.ints()[k], first.int_names()[k]) + ", ";
      for (const std::string& variable : first.local_names()) call += variable + ", ";
      call += begins[0].is_const(0) ? "at" : "at - " + kernel_.shared_integer("end", begins[0]);
    }
    w.line("$s($s);", name, call);
  }

  Kernel kernel_;
  std::vector<Member>& members_;
  IndexExpr total_ = 0;
};

}  // namespace

KernelSource generate_batch(const schedule::Schedule& schedule, const Group& group, const Caps& caps) {
  IndexExpr elements = 0;
  for (const Group& member : group.members) elements = elements + ir::product(member.sizes);
  std::vector<Member> members;
  for (const Group& member : group.members) members.push_back(print_member(schedule, member, caps, elements));
  KernelSource source = BatchPrinter(schedule, group, caps, members).print(group, caps);
  source.kind = "batch";
  return source;
}

}  // namespace ocl::codegen
