// csrc/exec/fill_plan.cpp: see fill_plan.h.
#include "csrc/exec/fill_plan.h"

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "csrc/checks/device_check.h"
#include "csrc/checks/quick_check.h"
#include "csrc/codegen/generate.h"
#include "csrc/exec/faults.h"
#include "csrc/exec/guard_zones.h"
#include "csrc/exec/kept_steps.h"
#include "csrc/exec/tune.h"
#include "csrc/support/compiler_crash.h"
#include "csrc/support/log.h"
#include "csrc/support/os.h"

namespace ocl::exec {
namespace {

double seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

void dump(const std::string& dir, const std::string& name, const std::string& text) {
  if (!os::write_private_file(dir + "/" + name, text))
    log_message(LogLevel::kWarning, "exec", "the dump " + dir + "/" + name + " cannot be written");
}

/// Removes the kernels for CPUs whose instructions take vectors of 16 words: a CPU with shorter vectors has none of them.
void remove_long_vectors(KernelSet& kernels) {
  for (const KernelRow& row : kernel_rows())
    for (const KernelRow::Checked& checked : row.types)
      if (row.level == KernelLevel::k_item && checked.tolerance > 0 && kernels.has(row.id, checked.type))
        kernels.remove(row.id, checked.type, "its instruction takes vectors of 16 words, and this CPU has shorter ones");
}

int node_count(const schedule::Group& group) { return static_cast<int>(group.nodes().size()); }

}  // namespace

Caps caps_for(const runtime::Device& device, const PlanOptions& options) {
  Caps caps = device.caps();
  if (options.kernel_family == "item") caps.is_cpu = true;
  if (options.kernel_family == "group") caps.is_cpu = false;
  if (options.vector_floats > 0) caps.vector_floats = options.vector_floats;
  if (caps.vector_floats < 16) remove_long_vectors(caps.kernels);
  if (options.units > 0) caps.units = options.units;
  for (const std::string& name : options.disable) caps.kernels.remove(name);
  return checks::unfailed_kernels(device, std::move(caps));
}

namespace {

/// Makes the schedule and measures how long that takes. Measured choices come from options.choice or from the device's
/// table.
void make_schedule(Plan& plan, ir::Graph graph, const Caps& caps, const PlanOptions& options) {
  schedule::Options traced = options.schedule;
  traced.trace = &plan.passes;
  traced.keeps_parameters = options.most_kept_bytes > 0;
  schedule::Measured tried;
  tried.default_choice = options.choice;
  const std::shared_ptr<const schedule::Measured> measured = measured_of(plan.device->index());
  if (!options.choice.empty())
    traced.measured = &tried;
  else if (options.tuned)
    traced.measured = measured.get();

  const double start = seconds();
  plan.schedule = schedule::make_schedule(std::move(graph), caps, traced);
  plan.schedule_seconds = seconds() - start;
  if (!options.dump_dir.empty()) dump(options.dump_dir, options.label + ".schedule.txt", schedule::str(plan.schedule));
}

/// Adds an interval of the arena for each buffer that has a lifetime.
void add_intervals(Plan& plan) {
  plan.interval_of.assign(plan.schedule.graph.buffers.size(), ir::kNone);
  for (const schedule::Lifetime& lifetime : plan.schedule.lifetimes) {
    plan.interval_of[lifetime.buffer] = static_cast<int>(plan.intervals.size());
    plan.intervals.push_back({lifetime.first, lifetime.last, 0});
    plan.interval_bytes.push_back(lifetime.size_bytes);
  }
}

/// Finds the memory of each buffer argument of the kernel. Scratch memory gets an interval of the arena at step
/// `position`.
void add_sources(Plan& plan, Launch& launch, int position) {
  for (const codegen::BufferArg& arg : launch.source.buffers) {
    BufferSource source = source_of(plan, arg.buffer);
    source.offset = arg.offset;
    source.slot = arg.slot;
    launch.buffers.push_back(source);
  }
  if (launch.source.scratch_elements > 0) {
    BufferSource source;
    source.kind = BufferSource::Kind::kScratch;
    source.index = static_cast<int>(plan.intervals.size());
    plan.intervals.push_back({position, position, 0});
    source.slot = launch.source.scratch_slot;
    plan.interval_bytes.push_back(launch.source.scratch_elements * 4);
    launch.buffers.push_back(source);
  }
}

/// InternalError if the device's profile does not allow as many arguments.
void check_arguments(const codegen::KernelSource& source, const runtime::Device& device, const std::string& where) {
  if (!device.profile()) return;
  size_t bytes = (source.buffers.size() + (source.scratch_elements > 0 ? 1 : 0)) * (sizeof(cl_mem) + sizeof(cl_ulong));
  for (const codegen::IntArg& argument : source.ints) bytes += argument.wide ? sizeof(cl_long) : sizeof(cl_int);
  if (bytes <= static_cast<size_t>(device.caps().max_kernel_arg_bytes)) return;
  fail(ErrorKind::kInternal, "kernel " + source.name + " takes " + std::to_string(bytes) + " bytes of arguments, but " +
                                 device.describe() + " allows " + std::to_string(device.caps().max_kernel_arg_bytes) +
                                 "\n  where: " + where);
}

/// UnsupportedError if a group computes in float64 and the device cannot.
void check_float64(const schedule::Schedule& schedule, const schedule::Group& group, const runtime::Device& device,
                   const std::string& where) {
  for (const ir::NodeId id : group.nodes()) {
    const ir::Node& node = schedule.graph.nodes[id];
    bool wide = std::ranges::any_of(node.body.ops, [](const ir::Op& op) { return op.dtype == ir::DType::kF64; });
    for (const ir::View& operand : node.operands)
      wide = wide || schedule.graph.buffers[operand.buffer].dtype == ir::DType::kF64;
    if (wide)
      fail(ErrorKind::kUnsupported, node.origin.op + " computes in float64, which ocl:" + std::to_string(device.index()) +
                                        ", " + device.describe() + ", does not have\n  where: " + where +
                                        "\n  do: convert to float32 before the op, or choose a device with float64 "
                                        "(torch.ocl.get_device_properties(i).has_fp64)");
  }
}

/// CompilerCrash if kernels use what the driver computes wrongly.
void check_driver(const Plan& plan, const runtime::Device& device, const std::vector<runtime::KernelText>& texts) {
  std::vector<size_t> wrong;
  std::string first;
  for (size_t i = 0; i < texts.size(); ++i)
    if (const std::string use = checks::faulty_use(device, plan.launches[i].source); !use.empty()) {
      if (wrong.empty()) first = use;
      wrong.push_back(i);
    }
  if (wrong.empty()) return;
  const std::string why = "it uses " + first + ", which this driver computes wrongly";
  throw CompilerCrash("kernel " + texts[wrong[0]].name + " cannot run on " + device.describe() + ": " + why +
                          "\n  where: " + texts[wrong[0]].where,
                      wrong, why);
}

/// Adds the steps and launches of all groups. Returns the kernel text of each launch.
std::vector<runtime::KernelText> add_steps(Plan& plan, const Caps& caps, const PlanOptions& options) {
  const schedule::Schedule& schedule = plan.schedule;
  std::vector<runtime::KernelText> texts;
  for (size_t position = 0; position < schedule.groups.size(); ++position) {
    const schedule::Group& group = schedule.groups[position];
    Step step;
    if (group.kind == schedule::GroupKind::kCall) {
      step.call = group.call;
      plan.steps.push_back(step);
      continue;
    }
    Launch launch;
    launch.origin = origin_of(schedule, group);
    launch.group = static_cast<int>(position);
    launch.ops = node_count(group);
    launch.work = schedule::work_of(schedule, group);
    const std::string where = "group " + std::to_string(position) + " of the " + options.label + ": " + launch.origin;
    if (plan.device != nullptr && !caps.fp64) check_float64(schedule, group, *plan.device, where);
    try {
      launch.source = codegen::generate(schedule, group, schedule::with_granted_items(schedule, group.nodes(), caps));
    } catch (const Error& error) {
      fail(error.kind(), std::string(error.what()) + "\n  where: " + where);
    }
    apply_faults(launch.source);
    if (plan.device != nullptr) check_arguments(launch.source, *plan.device, where);
    add_sources(plan, launch, static_cast<int>(position));
    texts.push_back({launch.source.name, launch.source.text, where, launch.source.local});
    if (!options.dump_dir.empty()) dump(options.dump_dir, options.label + "." + launch.source.name + ".cl", launch.source.text);
    step.launch = static_cast<int>(plan.launches.size());
    plan.steps.push_back(step);
    plan.launches.push_back(std::move(launch));
  }
  return texts;
}

/// Adds the intervals, the launches and the kept steps of a scheduled plan. Returns the kernel text of each launch.
std::vector<runtime::KernelText> add_launches(Plan& plan, const Caps& caps, const PlanOptions& options) {
  add_intervals(plan);
  std::vector<runtime::KernelText> texts = add_steps(plan, caps, options);
  // An observed plan keeps no results, so that every call runs and checks every step.
  plan.most_kept_bytes = options.check || options.guard_zones ? 0 : options.most_kept_bytes;
  mark_kept(plan);
  return texts;
}

}  // namespace

std::unique_ptr<const Plan> render(ir::Graph graph, const Caps& caps, const PlanOptions& options) {
  auto plan = std::make_unique<Plan>();
  schedule::Options keeping = options.schedule;
  keeping.keeps_parameters = options.most_kept_bytes > 0;
  plan->schedule = schedule::make_schedule(std::move(graph), caps, keeping);
  add_launches(*plan, caps, options);
  return plan;
}

void describe_plan(Plan& plan, runtime::Device& device, const PlanOptions& options) {
  plan.device = &device;
  plan.label = options.label;
  plan.op = options.op;
  plan.arena_purpose = std::make_shared<const std::string>("intermediate results of " + options.label);
  plan.results_purpose = std::make_shared<const std::string>("results of " + options.label);
  plan.kept_purpose = std::make_shared<const std::string>("packed weights of " + options.label);
}

bool fill_plan(Plan& plan, ir::Graph graph, runtime::Device& device, const runtime::BinaryStore& store,
               const PlanOptions& options) {
  schedule_plan(plan, std::move(graph), device, options);
  return build_plan(plan, device, store, options);
}

void schedule_plan(Plan& plan, ir::Graph graph, runtime::Device& device, const PlanOptions& options) {
  describe_plan(plan, device, options);
  const std::string text = options.dump_dir.empty() ? "" : graph.str();
  if (!text.empty()) dump(options.dump_dir, options.label + ".graph.txt", text);
  const Caps caps = caps_for(device, options);
  make_schedule(plan, std::move(graph), caps, options);
}

bool build_plan(Plan& plan, runtime::Device& device, const runtime::BinaryStore& store, const PlanOptions& options) {
  const Caps caps = caps_for(device, options);
  const double check_start = seconds();
  checks::LaunchChecks checks(device, store, plan.schedule);
  plan.check_seconds = seconds() - check_start;

  const double generate_start = seconds();
  const std::vector<runtime::KernelText> texts = add_launches(plan, caps, options);
  plan.codegen_seconds = seconds() - generate_start;

  const double build_start = seconds();
  try {
    plan.programs = runtime::build_programs(device, texts, store, options.failed_dir);
  } catch (const Error&) {
    // What does not build in a check does not build in the plan either.
    if (!checks.passed()) return false;
    check_driver(plan, device, texts);
    throw;
  }
  for (Launch& launch : plan.launches) launch.name_id = runtime::kernel_name_id(launch.source.name);
  plan.build_seconds = seconds() - build_start;
  if (!checks.passed()) return false;
  check_driver(plan, device, texts);
  plan.check_seconds += seconds() - build_start - plan.build_seconds;
  for (const ir::Output& output : plan.schedule.graph.outputs) plan.output_sources.push_back(source_of(plan, output.buffer));
  plan.guard_bytes = options.guard_zones ? kGuardBytes : 0;
  plan.checked = options.check;
  return true;
}

}  // namespace ocl::exec
